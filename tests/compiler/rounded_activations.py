"""A model of transformers that rounds what matrices are multiplied by: as a scheme of floats of 8 bits, or of signed
bytes, says, or as llama.cpp does."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import ml_dtypes
import numpy as np

from mlcbuild.compiler.quantization.float8.scheme import Float8Scheme
from mlcbuild.compiler.quantization.int8.scheme import Int8Scheme
from mlcbuild.compiler.quantization.scheme import QuantizationScheme
from tests.compiler.resolving import parameters_of
from tests.compiler.tiny_models import Array


def rounded(x: Array, scheme: Float8Scheme | Int8Scheme, static: Array | None = None) -> Array:
    """x (…, in), float32, as a matrix is multiplied by it: each group of a token's places times its own scale, or the
    `static` one (groups,), where that is not zero."""
    if isinstance(scheme, Int8Scheme):
        own = np.maximum(np.abs(x).max(axis=-1, keepdims=True), np.float32(1e-10)) / np.float32(127)
        step = own if static is None or static[0] == 0 else static
        return (np.clip(np.rint(x / step), -127, 127) * step).astype(np.float32)
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


def rounded_to_blocks(x: Array, block: int = 32) -> Array:
    """x (…, in), float32, as llama.cpp's products with blocks of integers round it (Q8_0): each `block` of numbers to
    integers of 8 bits, by steps of its largest number / 127, as float16 has them."""
    blocks = x.reshape(*x.shape[:-1], -1, block)
    step = np.abs(blocks).max(axis=-1, keepdims=True) / np.float32(127)
    inverse = np.divide(np.float32(1), step, out=np.zeros_like(step), where=step > 0)
    rounded_step = step.astype(np.float16).astype(np.float32)
    return (np.rint(blocks * inverse) * rounded_step).reshape(x.shape).astype(np.float32)


def round_activations(model: Any, scheme: QuantizationScheme, static: Mapping[str, Array] = {}) -> None:
    """Has the model round, before it multiplies by a matrix that the scheme covers; with the `static` scales of
    matrices, by their names in a checkpoint."""
    if not isinstance(scheme, Float8Scheme | Int8Scheme):
        return
    rounding_scheme, state = scheme, model.state_dict()
    static_of = {state[name].untyped_storage().data_ptr(): scales for name, scales in static.items()}
    round_before_products(
        model, scheme, lambda x, matrix: rounded(x, rounding_scheme, static_of.get(matrix.untyped_storage().data_ptr()))
    )


def round_before_products(model: Any, scheme: QuantizationScheme, rounding_of: Callable[[Array, Any], Array]) -> None:
    """Has a model of transformers round, by a function of both, what it multiplies by matrices of the scheme."""
    import torch
    from torch.overrides import TorchFunctionMode

    model.config._experts_implementation = "eager"  # whose products are those below
    state = model.state_dict()
    covered = {
        state[name].untyped_storage().data_ptr()
        for parameter in parameters_of(model.config.to_dict()).parameters
        if scheme.covers(parameter.role)
        for source in parameter.sources
        for name in (source.name, *(layout.name for layout in source.others))
        if name in state
    }
    products = (torch.nn.functional.linear, torch.matmul, torch.Tensor.matmul, torch.Tensor.__matmul__)
    copies: list[Any] = []

    class Rounding(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func in products and args[1].untyped_storage().data_ptr() in covered:
                x = torch.from_numpy(rounding_of(args[0].numpy(), args[1]))
                args = (x, *args[1:])
            found = func(*args, **(kwargs or {}))
            if func is torch.Tensor.__getitem__ and args[0].untyped_storage().data_ptr() in covered:
                # One of many experts' matrices, by a number that is a tensor too, is a copy.
                copies.append(found)
                covered.add(found.untyped_storage().data_ptr())
            return found

    forward = model.forward

    @functools.wraps(forward)
    def rounding(*args: Any, **kwargs: Any) -> Any:
        with Rounding():
            return forward(*args, **kwargs)

    model.forward = rounding
