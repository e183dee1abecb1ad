"""From imported shards by Gptq to quantized ones: what it chose is what packages have, and models are better for it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlcbuild.compiler.calibration.made_parameters import made
from mlcbuild.compiler.models.checkpoints.parameters import ParameterList, read_parameters, write_parameters
from mlcbuild.compiler.models.parameter_role import ParameterRole
from mlcbuild.compiler.stages import gptq
from mlcbuild.errors import InternalError, StageError
from tests.compiler import schemes
from tests.compiler.calibration.observing_hooks import observe, write_statistics
from tests.compiler.parity import reference
from tests.compiler.quantized_checkpoints import pack_quantized, quantized_tensors, write
from tests.compiler.resolving import parameters_of
from tests.compiler.staged_weights import imported, quantized
from tests.compiler.staged_weights import stored as stored_in
from tests.compiler.test_quantized_checkpoints import config_of, packed_config
from tests.compiler.tiny_llama import TINY_LLAMA
from tests.compiler.tiny_models import Array
from tests.compiler.windowed_cases import WINDOWED
from tests.parity_packages import parity_package

_MIXTRAL = WINDOWED["mixtral-window"].config


def calibrated(
    directory: Path,
    config: Mapping[str, Any],
    tensors: Mapping[str, Array],
    statistics: Path,
    name: str,
    *,
    by_activations: bool = False,
) -> dict[str, Array]:
    """The weights of a package by Gptq, by the names of stored tensors."""
    directory.mkdir(exist_ok=True)
    imported(directory, write(directory / "model.safetensors", tensors), config)
    scheme = schemes.scheme(name)
    for shard in sorted((directory / "shards").iterdir()):
        out = directory / f"calibrated_{shard.name}"
        gptq.run(
            shard=shard,
            parameters=directory / "parameters.json",
            statistics=statistics,
            calibrated=out,
            scheme=scheme,
            encoder=schemes.encoder_class(scheme),
            by_activations=by_activations,
        )
        out.replace(shard)
    write_parameters(made(read_parameters(directory / "parameters.json")), directory / "parameters.json")
    return stored_in(directory, quantized(directory, name))


def uncalibrated(
    directory: Path, config: Mapping[str, Any], tensors: Mapping[str, Array], name: str
) -> dict[str, Array]:
    directory.mkdir(exist_ok=True)
    imported(directory, write(directory / "model.safetensors", tensors), config)
    return stored_in(directory, quantized(directory, name))


def random_tensors(config: Mapping[str, Any]) -> dict[str, Array]:
    random = np.random.default_rng(0)
    sources = [tensor for parameter in parameters_of(config).parameters for tensor in parameter.sources]
    return {tensor.name: random.standard_normal(tensor.shape).astype(np.float32) for tensor in sources}


def random_inputs(listed: ParameterList, roles: Sequence[ParameterRole]) -> dict[str, Array]:
    """What matrices of some roles are multiplied by: few directions, and more rows than columns."""
    random = np.random.default_rng(1)
    found = {}
    for parameter in listed.parameters:
        if parameter.role in roles:
            columns = parameter.shape[-1]
            few = random.standard_normal((2 * columns, 8)) @ random.standard_normal((8, columns))
            found[parameter.name] = (few + 0.1 * random.standard_normal(few.shape)).astype(np.float32)
    return found


_CORRELATED: dict[str, Any] = TINY_LLAMA | {
    "hidden_size": 128,
    "intermediate_size": 256,
    "vocab_size": 64,
    "tie_word_embeddings": False,
}


def _correlated_model() -> Any:
    """A llama whose hidden states lie in 12 directions but for a little: so do embeddings, and what layers add."""
    parity_package("transformers")
    import torch

    from tests.compiler.running import random_model

    model = random_model(_CORRELATED, seed=3)
    directions = torch.randn(12, 128, generator=torch.Generator().manual_seed(4)) / 12**0.5
    with torch.no_grad():
        embedding = model.model.embed_tokens.weight
        embedding.copy_(torch.randn(64, 12) @ directions + 0.05 * torch.randn(64, 128))
        for layer in model.model.layers:
            for matrix in (layer.self_attn.o_proj.weight, layer.mlp.down_proj.weight):
                matrix.copy_(directions.T @ torch.randn(12, matrix.shape[1]) / matrix.shape[1] ** 0.5)
    return model


@pytest.mark.parametrize(("name", "factor"), [("q4f16_1", 3.0), ("q3f16_1", 3.0), ("q4f16_autoawq", 3.0)])
def test_logits_of_a_model_with_correlated_inputs_are_nearer_by_a_factor(
    name: str, factor: float, tmp_path: Path
) -> None:
    model = _correlated_model()
    random = np.random.default_rng(11)
    texts = [random.integers(0, 64, 128).tolist() for _ in range(8)]
    seen, unseen = texts[:7], texts[7]
    config = model.config.to_dict()
    from tests.compiler.running import tensors_of

    tensors = {each: array.copy() for each, array in tensors_of(model).items()}
    statistics = observe(model, seen, tmp_path / "statistics")
    exact = reference(model, unseen)
    errors = []
    for weights in (
        calibrated(tmp_path / "with", config, tensors, statistics, name),
        uncalibrated(tmp_path / "without", config, tensors, name),
    ):
        state = tensors_of(model)
        for each, numbers in schemes.restored(config, schemes.scheme(name), weights).items():
            if "embed" not in each:  # which both round alike
                state[each][...] = numbers
        errors.append(float(np.mean((reference(model, unseen) - exact) ** 2)))
    assert errors[0] * factor < errors[1], errors


@pytest.mark.parametrize("name", ["q4f16_1", "q3f16_1", "q4f16_autoawq", "q8f16_ft"])
def test_nothing_is_rounded_again_and_bytes_are_equal_on_repeat(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scheme, listed = schemes.scheme(name), parameters_of(_MIXTRAL)
    inputs = random_inputs(listed, (ParameterRole.LINEAR, ParameterRole.EXPERTS))
    statistics = write_statistics(tmp_path / "statistics", inputs)
    tensors = random_tensors(_MIXTRAL)
    found = calibrated(tmp_path / "one", _MIXTRAL, tensors, statistics, name)
    told = capsys.readouterr().out
    assert "restored" not in told
    covered = [one for one in listed.parameters if one.name in inputs and scheme.covers(one.role)]
    for parameter in covered:
        assert told.count(f"{parameter.name}: integers kept as they are") == len(parameter.parts)
    again = calibrated(tmp_path / "two", _MIXTRAL, tensors, statistics, name)
    plain = uncalibrated(tmp_path / "three", _MIXTRAL, tensors, name)
    changed = {tensor.name for parameter in covered for tensor in scheme.stored(parameter)}
    for each, array in found.items():
        assert array.tobytes() == again[each].tobytes()
        if each not in changed:
            assert array.tobytes() == plain[each].tobytes()
    for parameter in covered:
        for error, without in zip(
            errors_of(parameter, found, tensors, inputs, name),
            errors_of(parameter, plain, tensors, inputs, name),
            strict=True,
        ):
            assert error < 0.7 * without


def errors_of(
    parameter: Any, weights: Mapping[str, Array], tensors: Mapping[str, Array], inputs: Mapping[str, Array], name: str
) -> list[float]:
    """The squared error of products, of each expert or of the matrix."""
    scheme = schemes.scheme(name)
    back = schemes.encoder(scheme).decode(parameter, [weights[one.name] for one in scheme.stored(parameter)])
    sources = [tensors[source.name] for source in parameter.sources]
    exact = np.concatenate(sources).reshape(parameter.shape).astype(np.float64)
    products = (back.astype(np.float64) - exact) @ inputs[parameter.name].T
    parts = products if parameter.role is ParameterRole.EXPERTS else products[None]
    return [float((one**2).sum()) for one in parts]


def test_integers_of_a_checkpoint_stay_where_the_scheme_stores_them(tmp_path: Path) -> None:
    config = config_of(packed_config())
    tensors, _ = quantized_tensors(config, pack_quantized(32, 4))
    inputs = random_inputs(parameters_of(config), (ParameterRole.LINEAR,))
    statistics = write_statistics(tmp_path / "statistics", inputs)
    found = calibrated(tmp_path / "with", config, tensors, statistics, "q4f16_1")
    plain = uncalibrated(tmp_path / "without", config, tensors, "q4f16_1")
    for each, array in found.items():
        assert array.tobytes() == plain[each].tobytes()
    other = calibrated(tmp_path / "of 3 bits", config, tensors, statistics, "q3f16_1")
    rounded = uncalibrated(tmp_path / "rounded", config, tensors, "q3f16_1")
    assert any(array.tobytes() != rounded[each].tobytes() for each, array in other.items())


def test_statistics_of_another_width_and_schemes_without_integers_are_refused(tmp_path: Path) -> None:
    tensors = random_tensors(TINY_LLAMA)
    name = next(one.name for one in parameters_of(TINY_LLAMA).parameters if one.role is ParameterRole.LINEAR)
    statistics = write_statistics(tmp_path / "statistics", {name: np.ones((3, 32), np.float32)})
    with pytest.raises(StageError, match="has 64 columns, and the statistics 32"):
        calibrated(tmp_path / "a", TINY_LLAMA, tensors, statistics, "q4f16_1")
    with pytest.raises(InternalError, match="no integers"):
        calibrated(tmp_path / "b", TINY_LLAMA, tensors, statistics, "q0f16")


def test_weights_beyond_the_scales_are_told_by_name(tmp_path: Path) -> None:
    tensors = random_tensors(TINY_LLAMA)
    inputs = random_inputs(parameters_of(TINY_LLAMA), (ParameterRole.LINEAR,))
    statistics = write_statistics(tmp_path / "statistics", inputs)
    tensors["model.layers.1.mlp.down_proj.weight"][0, 0] = 65000
    with pytest.raises(StageError, match=r"model\.layers\.1\.mlp\.down_proj\.weight has weights that are too large"):
        calibrated(tmp_path / "a", TINY_LLAMA, tensors, statistics, "q4f16_1")
    assert json.loads((tmp_path / "a/manifest.json").read_text())
