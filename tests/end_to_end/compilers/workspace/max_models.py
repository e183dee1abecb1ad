"""The MLP of checks/write.py for MAX, with its names of weights."""

from max.dtype import DType
from max.graph import DeviceRef, Graph, TensorType, Weight, ops

PROCESSOR = DeviceRef.CPU()


def mlp(batch: int = 8) -> tuple[Graph, list[Weight]]:
    shapes = {"w1": (64, 256), "b1": (256,), "w2": (256, 64)}
    weights = [Weight(name, DType.float32, shape, PROCESSOR) for name, shape in shapes.items()]
    with Graph("model", input_types=[TensorType(DType.float32, (batch, 64), PROCESSOR)]) as graph:
        w1, b1, w2 = (graph.add_weight(weight) for weight in weights)
        graph.output(ops.relu(graph.inputs[0].tensor @ w1 + b1) @ w2)
    return graph, weights


def nothing() -> int:
    return 0
