"""WriteModel: writes an ONNX file of a perceptron of two layers. `model` is written; `width` is that of an input."""

from __future__ import annotations

from pathlib import Path


def run(*, model: Path, width: int) -> None:
    import numpy as np
    from onnx import TensorProto, checker, helper, numpy_helper, save

    random = np.random.default_rng(0)
    shapes = {"A": (width, 4 * width), "B": (4 * width, width)}
    weights = {
        name: (random.standard_normal(shape) / shape[0] ** 0.5).astype("float32") for name, shape in shapes.items()
    }
    nodes = [
        helper.make_node("MatMul", ["x", "A"], ["inner"]),
        helper.make_node("Relu", ["inner"], ["positive"]),
        helper.make_node("MatMul", ["positive", "B"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "mlp",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", width])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", width])],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    written = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    checker.check_model(written)
    save(written, str(model))
