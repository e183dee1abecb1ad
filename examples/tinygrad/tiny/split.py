"""`model` → `graph`: the model with weights as inputs; `weights`: their numbers, one after the other. Needs onnx."""

from __future__ import annotations

from pathlib import Path


def run(*, model: Path, graph: Path, weights: Path) -> None:
    import onnx

    loaded = onnx.load(model)
    tensors = list(loaded.graph.initializer)
    del loaded.graph.initializer[:]
    with weights.open("wb") as file:
        for tensor in tensors:
            if tensor.data_type == onnx.TensorProto.FLOAT and tensor.dims:
                file.write(onnx.numpy_helper.to_array(tensor).tobytes())
                described = onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
                loaded.graph.input.append(described)
            else:  # Shapes, axes and the like: without their values nothing can be compiled.
                loaded.graph.initializer.append(tensor)
    onnx.save(loaded, graph)
