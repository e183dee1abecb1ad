"""A model of transformers that rounds what matrices are multiplied by, as a scheme of floats of 8 bits says."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np

from mlcbuild.compiler.quantization.float8.scheme import Float8Scheme
from mlcbuild.compiler.quantization.scheme import QuantizationScheme
from tests.compiler.resolving import parameters_of
from tests.compiler.tiny_models import Array


def rounded(x: Array, scheme: Float8Scheme, static: Array | None = None) -> Array:
    """x (…, in), float32, as a matrix is multiplied by it: each group of a token's places times its own scale, or the
    `static` one (groups,), where that is not zero."""
    kind = getattr(ml_dtypes, scheme.format.dtype)
    most = np.float32(scheme.format.largest)
    if scheme.activations is None:
        return np.clip(x, -most, most).astype(kind).astype(np.float32)
    columns = x.shape[-1]
    width = scheme.activations.group or columns
    padded = np.pad(x, [*[(0, 0)] * (x.ndim - 1), (0, -columns % width)])
    groups = padded.reshape(*x.shape[:-1], -1, width)
    scale = np.maximum(np.abs(groups).max(axis=-1, keepdims=True), np.float32(1e-10)) / most
    if static is not None:
        scale = np.where(static[:, np.newaxis] > 0, static[:, np.newaxis], scale)
    floats = np.clip(groups / scale, -most, most).astype(kind).astype(np.float32) * scale
    return floats.reshape(padded.shape)[..., :columns].astype(np.float32)


def round_activations(model: Any, scheme: QuantizationScheme, static: Mapping[str, Array] = {}) -> None:
    """Has the model round, before it multiplies by a matrix that the scheme covers; with the `static` scales of
    matrices, by their names in a checkpoint."""
    if not isinstance(scheme, Float8Scheme):
        return
    import torch
    from torch.overrides import TorchFunctionMode

    model.config._experts_implementation = "eager"  # whose products are `linear`
    state = model.state_dict()
    covered = {
        state[name].untyped_storage().data_ptr()
        for parameter in parameters_of(model.config.to_dict()).parameters
        if scheme.covers(parameter.role)
        for source in parameter.sources
        for name in (source.name, *(layout.name for layout in source.others))
        if name in state
    }

    float8 = scheme
    static_of = {state[name].untyped_storage().data_ptr(): scales for name, scales in static.items()}

    class Rounding(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func is torch.nn.functional.linear and args[1].untyped_storage().data_ptr() in covered:
                scales = static_of.get(args[1].untyped_storage().data_ptr())
                args = (torch.from_numpy(rounded(args[0].numpy(), float8, scales)), *args[1:])
            return func(*args, **(kwargs or {}))

    forward = model.forward

    @functools.wraps(forward)
    def rounding(*args: Any, **kwargs: Any) -> Any:
        with Rounding():
            return forward(*args, **kwargs)

    model.forward = rounding
