"""`model` → `cases`: inputs, and what float64 makes of them. Needs onnx.

For each of `sizes` (of the dimension called `dimension`) the folder has `SIZE/in-NAME.npy` and `SIZE/out-NAME.npy`;
`cases.json` has the names of inputs and outputs in the model's order. A model without such a dimension has one case,
whose folder is called by the first size of its first input.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def run(*, model: Path, cases: Path, dimension: str, sizes: Sequence[int], seed: int) -> None:
    import numpy as np
    import onnx
    from onnx.reference import ReferenceEvaluator

    taken = onnx.load(model)
    weights = {each.name for each in taken.graph.initializer}
    inputs = [each for each in taken.graph.input if each.name not in weights]
    for each in inputs:
        if any(not (size.dim_param or size.dim_value) for size in each.type.tensor_type.shape.dim):
            raise SystemExit(f"the input {each.name} of the model has an open size without a name: export it with one")
    open_names = {size.dim_param for each in inputs for size in each.type.tensor_type.shape.dim if size.dim_param}
    if unknown := sorted(open_names - {dimension}):
        raise SystemExit(f"the model has sizes that nothing names: {', '.join(unknown)}: give them in its onnx_model")
    if sizes and dimension not in open_names:
        raise SystemExit(f"the model has no size {dimension or 'that is open'}: all of its sizes are fixed")
    if open_names and not sizes:
        raise SystemExit(f"the size {dimension} of the model is open: sizes has none for it")
    names = {"inputs": [each.name for each in inputs], "outputs": [each.name for each in taken.graph.output]}
    wide = ReferenceEvaluator(_in_float64(onnx.load(model)))
    random = np.random.default_rng(seed)
    numbers = []
    for size in sizes or (0,):
        arrays = {each.name: _random(each, size, random) for each in inputs}
        _place_in_cache(arrays)
        number = size or next((array.shape[0] for array in arrays.values() if array.ndim), 1)
        numbers.append(number)
        given = {name: array.astype("f8") if array.dtype.kind == "f" else array for name, array in arrays.items()}
        made = dict(zip(names["outputs"], wide.run(None, given), strict=True))
        folder = cases / str(number)
        folder.mkdir(parents=True)
        for kind, all_arrays in (("in", arrays), ("out", made)):
            for name, array in all_arrays.items():
                np.save(folder / f"{kind}-{names[f'{kind}puts'].index(name)}.npy", np.ascontiguousarray(array))
    (cases / "cases.json").write_text(json.dumps({**names, "sizes": numbers}), encoding="utf-8")


def _random(value: Any, size: int, random: Any) -> Any:
    """Floats around 0; integers and truth values are 0 or 1, which index whatever there is."""
    from onnx.helper import tensor_dtype_to_np_dtype

    kind = tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
    shape = [each.dim_value or size for each in value.type.tensor_type.shape.dim]
    if kind.kind == "f":
        return random.standard_normal(shape).astype(kind)
    return random.integers(0, 2, shape).astype(kind)


def _place_in_cache(arrays: dict[str, Any]) -> None:
    """An `exported_layer` has a KV cache. Its new tokens come behind three quarters of it, so that both places that are
    read and places that are masked count."""
    import numpy as np

    positions, keys = arrays.get("positions"), arrays.get("past_keys")
    if positions is not None and keys is not None and positions.ndim == 1 and keys.ndim == 4:
        filled = keys.shape[2] * 3 // 4
        arrays["positions"] = np.arange(filled, filled + len(positions), dtype=positions.dtype)


def _in_float64(model: Any) -> Any:
    """The model with double in place of float, in its weights, its declared types, its constants and its casts."""
    from onnx import TensorProto, numpy_helper

    def wide(tensor: Any) -> None:
        if tensor.data_type == TensorProto.FLOAT:
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype("f8"), tensor.name))

    for tensor in model.graph.initializer:
        wide(tensor)
    for value in (*model.graph.input, *model.graph.output, *model.graph.value_info):
        if value.type.tensor_type.elem_type == TensorProto.FLOAT:
            value.type.tensor_type.elem_type = TensorProto.DOUBLE
    for node in model.graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                wide(attribute.t)
            if node.op_type == "Cast" and attribute.name == "to" and attribute.i == TensorProto.FLOAT:
                attribute.i = TensorProto.DOUBLE
    return model
