"""`model` (ONNX) → `graph`: the same model with zeros for its weights. Needs onnx.

Who compiles or searches by shapes and operators alone takes that, and has nothing to do for other weights. Tensors of
few numbers stay: they may be shapes, sizes or factors.
"""

from __future__ import annotations

from pathlib import Path

_MOST_KEPT = 16  # numbers of a tensor that is no weight


def run(*, model: Path, graph: Path) -> None:
    import numpy as np
    import onnx
    from onnx import numpy_helper

    whole = onnx.load(model)
    for each in whole.graph.initializer:
        if int(np.prod(each.dims)) > _MOST_KEPT and each.data_type in _floats():
            value = numpy_helper.to_array(each)
            each.CopyFrom(numpy_helper.from_array(np.zeros_like(value), each.name))
    graph.write_bytes(whole.SerializeToString(deterministic=True))


def _floats() -> set[int]:
    from onnx import TensorProto

    return {TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16}
