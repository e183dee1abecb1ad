"""ConfigureModel: a model as one library or package has it, with its overrides applied and its quantization checked.

Reads `model` and `parameters` of ResolveModel. Writes `model_out`, model.json with the library's own sizes, `window`,
the sliding window among these, on which kernels depend, and `parameters_out`, which is `parameters` unchanged.
Everything else of the library or package takes its parameters from here, so that a mistake is told before anything of
it is done, and overrides that differ do not quantize twice.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from mlcbuild.compiler.models.architecture.window import write_window
from mlcbuild.compiler.models.checkpoints.parameters import read_parameters
from mlcbuild.compiler.models.configuring import configure
from mlcbuild.compiler.models.description import read_model, write_model
from mlcbuild.compiler.quantization.kept_weights import check_kept
from mlcbuild.compiler.quantization.scheme import QuantizationScheme
from mlcbuild.errors import StageError


def run(
    *,
    model: Path,
    parameters: Path,
    model_out: Path,
    parameters_out: Path,
    window: Path,
    scheme: QuantizationScheme,
    overrides: Mapping[str, object],
    kv_state_kinds: Sequence[str] | None = None,
    sliding_windows: bool = True,
    refuse_requantizing: bool = False,
) -> None:
    """`scheme` is a plug-in; the others are those of `models.configuring.configure`.

    Raises StageError with every reason why the model cannot be built so, and, if requantizing is refused, for a scheme
    that would quantize the weights of a quantized checkpoint again.
    """
    listed = read_parameters(parameters)
    if refuse_requantizing:
        check_kept(listed.quantized, (scheme,))
    configured, invalid = configure(
        read_model(model),
        listed,
        scheme=scheme,
        overrides=overrides,
        kv_state_kinds=kv_state_kinds,
        sliding_windows=sliding_windows,
    )
    if invalid:
        first, *others = (one.error for one in invalid)
        raise StageError(first.message, advice=(*first.advice, *map(str, others)))
    write_model(configured, model_out)
    write_window(configured.sizes.window, window)
    shutil.copyfile(parameters, parameters_out)
