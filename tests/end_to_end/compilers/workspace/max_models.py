"""The models of checks/write.py for MAX, with their names of weights."""

from collections.abc import Mapping

import numpy as np
from max.dtype import DType
from max.graph import DeviceRef, Graph, TensorType, TensorValue, Weight, ops

PROCESSOR = DeviceRef.CPU()
WIDTH, HEADS, INNER, PAST, TOKENS = 64, 4, 176, 5, 3
HEAD = WIDTH // HEADS
Made = tuple[Graph, list[Weight]]


def weights_of(shapes: Mapping[str, tuple[int, ...]]) -> list[Weight]:
    return [Weight(name, DType.float32, shape, PROCESSOR) for name, shape in shapes.items()]


def floats(*shape: int) -> TensorType:
    return TensorType(DType.float32, shape, PROCESSOR)


def constant(values: np.ndarray) -> TensorValue:
    return ops.constant(np.ascontiguousarray(values, "f4"), DType.float32, PROCESSOR)


def mlp(batch: int = 8) -> Made:
    weights = weights_of({"w1": (64, 256), "b1": (256,), "w2": (256, 64)})
    with Graph("model", input_types=[floats(batch, 64)]) as graph:
        w1, b1, w2 = (graph.add_weight(weight) for weight in weights)
        graph.output(ops.relu(graph.inputs[0].tensor @ w1 + b1) @ w2)
    return graph, weights


def block() -> Made:
    weights = weights_of({"w1": (16, 16, 3, 3), "w2": (16, 16, 3, 3)})
    with Graph("model", input_types=[floats(1, 16, 12, 12)]) as graph:
        # It has its channels last.
        x = ops.permute(graph.inputs[0].tensor, [0, 2, 3, 1])
        first, second = (ops.permute(graph.add_weight(weight), [2, 3, 1, 0]) for weight in weights)
        inside = ops.relu(ops.conv2d(x, first, padding=(1, 1, 1, 1)))
        made = ops.conv2d(inside, second, padding=(1, 1, 1, 1)) + x
        graph.output(ops.permute(made, [0, 3, 1, 2]))
    return graph, weights


def layer() -> Made:
    shapes: dict[str, tuple[int, ...]] = dict.fromkeys(("wq", "wk", "wv", "wo"), (WIDTH, WIDTH))
    shapes |= {"norm1": (WIDTH,), "norm2": (WIDTH,), "down": (INNER, WIDTH)}
    shapes |= dict.fromkeys(("gate", "up"), (WIDTH, INNER))
    weights = weights_of(shapes)
    positions = np.arange(PAST, PAST + TOKENS)[:, None] / 10000 ** (np.arange(HEAD // 2) * 2 / HEAD)
    angles = np.concatenate([positions, positions], axis=1)
    seen = np.arange(PAST + TOKENS)[None] <= np.arange(PAST, PAST + TOKENS)[:, None]

    def normed(x: TensorValue, weight: TensorValue) -> TensorValue:
        return x * ops.rsqrt(ops.mean(x * x, axis=-1) + 1e-5) * weight

    def heads(x: TensorValue) -> TensorValue:
        return ops.permute(ops.reshape(x, [1, TOKENS, HEADS, HEAD]), [0, 2, 1, 3])

    def turned(x: TensorValue) -> TensorValue:
        low, high = ops.split(x, [HEAD // 2, HEAD // 2], axis=-1)
        return x * constant(np.cos(angles)) + ops.concat([-high, low], -1) * constant(np.sin(angles))

    past = floats(1, HEADS, PAST, HEAD)
    with Graph("model", input_types=[floats(1, TOKENS, WIDTH), past, past]) as graph:
        w = {name: graph.add_weight(weight) for name, weight in zip(shapes, weights, strict=True)}
        x, past_keys, past_values = (each.tensor for each in graph.inputs)
        normal = normed(x, w["norm1"])
        keys = ops.concat([past_keys, turned(heads(normal @ w["wk"]))], 2)
        values = ops.concat([past_values, heads(normal @ w["wv"])], 2)
        scores = turned(heads(normal @ w["wq"])) @ ops.permute(keys, [0, 1, 3, 2]) * HEAD**-0.5
        mixed = ops.softmax(scores + constant(np.where(seen, 0.0, -1e9))) @ values
        middle = x + ops.reshape(ops.permute(mixed, [0, 2, 1, 3]), [1, TOKENS, WIDTH]) @ w["wo"]
        normal = normed(middle, w["norm2"])
        graph.output(middle + ops.silu(normal @ w["gate"]) * (normal @ w["up"]) @ w["down"], keys, values)
    return graph, weights


def nothing() -> int:
    return 0
