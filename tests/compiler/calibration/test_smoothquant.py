"""SmoothQuant with the scheme that it is for: a library whose weights and activations are signed bytes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mlcbuild.compiler.stages import apply_scales, smooth_scales
from tests.compiler import schemes
from tests.compiler.calibration import outlier_model
from tests.compiler.parity import reference
from tests.compiler.pipeline import CPU_TARGET, compile_library
from tests.compiler.running import Library
from tests.compiler.tiny_models import Array

_SCHEME = "int8_int8_f16"


@pytest.mark.slow
def test_bytes_for_weights_and_activations_win_on_outliers(tmp_path: Path, kernel_store: Path) -> None:
    """A fifth of the error at most, and within a half more than that of the model without outliers: the error of logits
    by a library, against the plain model in float32."""
    models, scheme = outlier_model.make_models(), schemes.scheme(_SCHEME)
    shard = outlier_model.write_shard(tmp_path / "outliers", models.tensors)
    folder = shard.parent
    outlier_model.write_statistics(folder / "statistics", models.outliers, outlier_model.texts(8, seed=6))
    smooth_scales.run(
        shards=[shard],
        parameters=folder / "parameters.json",
        statistics=folder / "statistics",
        scales=folder / "scales",
        alpha=0.5,
        scheme=scheme,
        encoder=schemes.encoder_class(scheme),
    )
    apply_scales.run(
        shard=shard, parameters=folder / "parameters.json", scales=folder / "scales", calibrated=folder / "calibrated"
    )
    plain = outlier_model.write_shard(tmp_path / "plain", models.plain_tensors)
    library = compile_library(outlier_model.CONFIG, _SCHEME, CPU_TARGET, tmp_path / "it", kernel_store=kernel_store)
    held = outlier_model.texts(2, seed=5)
    expected = np.concatenate([reference(models.plain, text) for text in held])

    def error(made_of: Path, parameters: str) -> float:
        """The root of the mean squared difference, relative to that of the logits."""
        weights = outlier_model.stored(made_of, _SCHEME, parameters=made_of.parent / parameters)
        found = _logits(library, weights, held)
        return float(np.sqrt(((found - expected) ** 2).mean() / (expected**2).mean()))

    best = error(plain, "parameters.json")
    without = error(shard, "parameters.json")
    smooth = error(folder / "calibrated", "made.json")
    assert smooth < without / 5
    assert smooth < 1.5 * best


def _logits(library: Path, weights: dict[str, Array], held: list[list[int]]) -> Array:
    decoder = Library.load(library, weights)
    found = []
    for number, text in enumerate(held):
        decoder.add(number)
        found.append(decoder.run("batch_verify", [number], [len(text)], decoder.embed(text)[None])[0])
    return np.concatenate(found)
