"""Writes small models as ONNX, with inputs and what float64 makes of them, by NumPy. Needs onnx."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

WIDTH, HEADS, INNER, PAST, TOKENS = 64, 4, 176, 5, 3
HEAD = WIDTH // HEADS


def run(*, model: Path, cases: Path, weights: Path, kind: str, seed: int) -> None:
    import numpy as np

    random = np.random.default_rng(seed)
    values = {"mlp": _mlp, "block": _block, "layer": _layer}[kind](model, cases, random)
    _save_weights(values, weights)
    for name, value in values.items():
        np.save(cases / f"weight-{name}.npy", value)


def _save_weights(values: dict[str, Any], file: Path) -> None:
    """As safetensors: a header, its length before it, and the numbers."""
    header, at = {}, 0
    for name, value in values.items():
        header[name] = {"dtype": "F32", "shape": list(value.shape), "data_offsets": [at, at + value.nbytes]}
        at += value.nbytes
    written = json.dumps(header).encode()
    file.write_bytes(
        b"".join([struct.pack("<Q", len(written)), written, *(each.tobytes() for each in values.values())])
    )


def run_changed(*, model: Path, folder: Path, change: str) -> None:
    """The same model in other ways: its weights in a file of their own, or broken."""
    import onnx
    from onnx import numpy_helper

    whole = onnx.load(model)
    folder.mkdir(exist_ok=True)
    file = folder / f"{change}.onnx"
    if change == "apart":
        onnx.save(whole, file, save_as_external_data=True, location="weights.bin", size_threshold=0)
        return
    if change == "cut":
        file.write_bytes(model.read_bytes()[:1000])
        return
    if change == "infinite":
        values = numpy_helper.to_array(whole.graph.initializer[0]).copy()
        values.flat[0] = float("inf")
        whole.graph.initializer[0].CopyFrom(numpy_helper.from_array(values, whole.graph.initializer[0].name))
    elif change == "custom":
        whole.graph.node[2].domain = "some.maker"
        whole.opset_import.append(onnx.helper.make_opsetid("some.maker", 1))
    elif change == "shapes":
        whole.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 65
    elif change == "missing":
        whole.graph.node[1].input[0] = "nowhere"
    onnx.save(whole, file)


def _mlp(model: Path, cases: Path, random: Any) -> dict[str, Any]:
    import numpy as np

    weights = {
        "w1": random.normal(size=(64, 256)) / 8,
        "b1": random.normal(size=256),
        "w2": random.normal(size=(256, 64)) / 16,
    }
    x = random.normal(size=(8, 64)).astype("f4")
    weights = {name: value.astype("f4") for name, value in weights.items()}
    nodes: Any = [
        ("MatMul", ["x", "w1"], ["a"], {}),
        ("Add", ["a", "b1"], ["b"], {}),
        ("Relu", ["b"], ["c"], {}),
        ("MatMul", ["c", "w2"], ["y"], {}),
    ]
    w1, b1, w2 = (weights[name].astype("f8") for name in ("w1", "b1", "w2"))
    _save(model, cases, nodes, weights, {"x": x}, {"y": np.maximum(x @ w1 + b1, 0) @ w2}, open_size="x")
    return weights


def _block(model: Path, cases: Path, random: Any) -> dict[str, Any]:
    """A block of a convolution net: convolution, ReLU, convolution, and the input again."""
    import numpy as np

    weights = {"w1": random.normal(size=(16, 16, 3, 3)) / 12, "w2": random.normal(size=(16, 16, 3, 3)) / 12}
    weights = {name: value.astype("f4") for name, value in weights.items()}
    x = random.normal(size=(1, 16, 12, 12)).astype("f4")
    nodes: Any = [
        ("Conv", ["x", "w1"], ["a"], {"pads": [1, 1, 1, 1]}),
        ("Relu", ["a"], ["b"], {}),
        ("Conv", ["b", "w2"], ["c"], {"pads": [1, 1, 1, 1]}),
        ("Add", ["c", "x"], ["y"], {}),
    ]

    def convolved(values: Any, kernel: Any) -> Any:
        windows = np.lib.stride_tricks.sliding_window_view(
            np.pad(values, ((0, 0), (0, 0), (1, 1), (1, 1))), (3, 3), (2, 3)
        )
        return np.einsum("nchwij,ocij->nohw", windows, kernel)

    inside = np.maximum(convolved(x.astype("f8"), weights["w1"].astype("f8")), 0)
    _save(model, cases, nodes, weights, {"x": x}, {"y": convolved(inside, weights["w2"].astype("f8")) + x})
    return weights


def _layer(model: Path, cases: Path, random: Any) -> dict[str, Any]:
    """A decoder layer of Llama: keys and values of earlier tokens come in, those of all tokens go out."""
    import numpy as np

    shapes = {
        "norm1": (WIDTH,), "wq": (WIDTH, WIDTH), "wk": (WIDTH, WIDTH), "wv": (WIDTH, WIDTH), "wo": (WIDTH, WIDTH),
        "norm2": (WIDTH,), "gate": (WIDTH, INNER), "up": (WIDTH, INNER), "down": (INNER, WIDTH),
    }  # fmt: skip
    weights = {name: (random.normal(size=shape) / np.sqrt(shape[0])).astype("f4") for name, shape in shapes.items()}
    positions = np.arange(PAST, PAST + TOKENS)[:, None] / 10000 ** (np.arange(HEAD // 2) * 2 / HEAD)
    angles = np.concatenate([positions, positions], axis=1)
    mask = np.where(np.arange(PAST + TOKENS)[None] <= np.arange(PAST, PAST + TOKENS)[:, None], 0.0, -1e9)
    constants = {"cos": np.cos(angles), "sin": np.sin(angles), "mask": mask, "scale": np.array(HEAD**-0.5)}
    constants = {
        name: value.astype("f4")
        for name, value in (*constants.items(), ("eps", np.array(1e-5)), ("two", np.array(2.0)))
    }
    integers = {
        "split": np.array([1, TOKENS, HEADS, HEAD]), "joined": np.array([1, TOKENS, WIDTH]), "zero": np.array([0]),
        "half": np.array([HEAD // 2]), "whole": np.array([HEAD]), "last": np.array([3]),
    }  # fmt: skip
    inputs = {
        "x": random.normal(size=(1, TOKENS, WIDTH)).astype("f4"),
        "past_keys": random.normal(size=(1, HEADS, PAST, HEAD)).astype("f4"),
        "past_values": random.normal(size=(1, HEADS, PAST, HEAD)).astype("f4"),
    }
    nodes: list[tuple[str, list[str], list[str], dict[str, Any]]] = []

    def op(kind: str, names: list[str], out: str, **attributes: Any) -> str:
        nodes.append((kind, names, [out], attributes))
        return out

    def norm(x: str, weight: str, out: str) -> str:
        mean = op("ReduceMean", [op("Pow", [x, "two"], f"{out}_square"), "minus_one"], f"{out}_mean", keepdims=1)
        root = op("Sqrt", [op("Add", [mean, "eps"], f"{out}_eps")], f"{out}_root")
        return op("Mul", [op("Div", [x, root], f"{out}_unit"), weight], out)

    def heads(x: str, weight: str, out: str) -> str:
        split = op("Reshape", [op("MatMul", [x, weight], f"{out}_flat"), "split"], f"{out}_split")
        return op("Transpose", [split], out, perm=[0, 2, 1, 3])

    def turned(x: str, out: str) -> str:
        low = op("Slice", [x, "zero", "half", "last"], f"{out}_low")
        high = op("Neg", [op("Slice", [x, "half", "whole", "last"], f"{out}_high")], f"{out}_negative")
        other = op("Concat", [high, low], f"{out}_other", axis=3)
        return op("Add", [op("Mul", [x, "cos"], f"{out}_c"), op("Mul", [other, "sin"], f"{out}_s")], out)

    normal = norm("x", "norm1", "n1")
    q = turned(heads(normal, "wq", "q"), "q_turned")
    keys = op("Concat", ["past_keys", turned(heads(normal, "wk", "k"), "k_turned")], "keys", axis=2)
    values = op("Concat", ["past_values", heads(normal, "wv", "v")], "values", axis=2)
    scores = op("Mul", [op("MatMul", [q, op("Transpose", [keys], "kt", perm=[0, 1, 3, 2])], "qk"), "scale"], "scaled")
    shares = op("Softmax", [op("Add", [scores, "mask"], "masked")], "shares", axis=3)
    mixed = op("Transpose", [op("MatMul", [shares, values], "mixed")], "mixed_t", perm=[0, 2, 1, 3])
    attended = op("MatMul", [op("Reshape", [mixed, "joined"], "flat"), "wo"], "attended")
    middle = op("Add", ["x", attended], "middle")
    second = norm(middle, "norm2", "n2")
    gate = op("MatMul", [second, "gate"], "g")
    inner = op(
        "Mul", [op("Mul", [gate, op("Sigmoid", [gate], "g_s")], "silu"), op("MatMul", [second, "up"], "u")], "inner"
    )
    op("Add", [middle, op("MatMul", [inner, "down"], "d")], "y")

    w = {name: value.astype("f8") for name, value in weights.items()}
    x = inputs["x"].astype("f8")

    def normed(value: Any, weight: Any) -> Any:
        return value / np.sqrt((value**2).mean(-1, keepdims=True) + 1e-5) * weight

    def by_head(value: Any) -> Any:
        return value.reshape(1, TOKENS, HEADS, HEAD).transpose(0, 2, 1, 3)

    def rotated(value: Any) -> Any:
        low, high = value[..., : HEAD // 2], value[..., HEAD // 2 :]
        return value * np.cos(angles) + np.concatenate([-high, low], -1) * np.sin(angles)

    n = normed(x, w["norm1"])
    all_keys = np.concatenate([inputs["past_keys"], rotated(by_head(n @ w["wk"]))], 2)
    all_values = np.concatenate([inputs["past_values"], by_head(n @ w["wv"])], 2)
    raw = rotated(by_head(n @ w["wq"])) @ all_keys.transpose(0, 1, 3, 2) * HEAD**-0.5 + mask
    share = np.exp(raw - raw.max(-1, keepdims=True))
    share /= share.sum(-1, keepdims=True)
    between = x + (share @ all_values).transpose(0, 2, 1, 3).reshape(1, TOKENS, WIDTH) @ w["wo"]
    n = normed(between, w["norm2"])
    g = n @ w["gate"]
    y = between + (g / (1 + np.exp(-g)) * (n @ w["up"])) @ w["down"]
    constants["minus_one"] = np.array([-1])
    _save(
        model,
        cases,
        nodes,
        {**weights, **constants, **integers},
        inputs,
        {"y": y, "keys": all_keys, "values": all_values},
    )
    return weights


def _save(
    model: Path, cases: Path, nodes: Any, weights: Any, inputs: Any, outputs: Any, *, open_size: str = ""
) -> None:
    """`open_size` is the input whose first size, and that of all outputs, has the name batch."""
    import numpy as np
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    def shape(value: Any) -> list[int | str]:
        return ["batch" if open_size else value.shape[0], *value.shape[1:]]

    def tensors(values: Any) -> list[Any]:
        return [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape(value)) for name, value in values.items()]

    graph = helper.make_graph(
        [helper.make_node(kind, taken, made, **more) for kind, taken, made, more in nodes],
        "model",
        tensors(inputs),
        tensors(outputs),
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), model)
    cases.mkdir(exist_ok=True)
    for name, value in inputs.items():
        np.save(cases / f"in-{name}.npy", value)
    for name, value in outputs.items():
        np.save(cases / f"out-{name}.npy", value)
