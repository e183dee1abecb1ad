"""A layer of one of our models (`graph`, layer.json, and `weights`, safetensors) → `model`, ONNX. Needs onnx.

The same graph and weights give the same bytes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_OPSET, _FORM = 20, 10  # of ONNX's operators, and of its files
_NAMES: Mapping[str, str] = {
    "add": "Add",
    "subtract": "Sub",
    "multiply": "Mul",
    "divide": "Div",
    "minimum": "Min",
    "maximum": "Max",
    "less_equal": "LessOrEqual",
    "greater": "Greater",
    "both": "And",
    "sqrt": "Sqrt",
    "tanh": "Tanh",
    "sigmoid": "Sigmoid",
    "erf": "Erf",
    "relu": "Relu",
    "cos": "Cos",
    "sin": "Sin",
    "where": "Where",
    "matmul": "MatMul",
}  # What is not here has attributes.


def run(*, graph: Path, weights: Path, model: Path) -> None:
    import onnx
    from onnx import helper, numpy_helper

    layer = json.loads(graph.read_text(encoding="utf-8"))
    renamed = {made: name for name, made in layer["outputs"].items()}  # the layer's outputs by their own names

    def name(value: str) -> str:
        return str(renamed.get(value, value))

    def described(value: Mapping[str, Any]) -> Any:
        return helper.make_tensor_value_info(name(value["name"]), _kind(value["dtype"]), value["shape"])

    stored = _read(weights)
    initializers = [numpy_helper.from_array(stored[each["name"]], each["value"]["name"]) for each in layer["weights"]]
    initializers += [numpy_helper.from_array(_numbers(each), each["value"]["name"]) for each in layer["constants"]]
    nodes: list[Any] = []
    for node in layer["nodes"]:
        inputs, attributes, added = _details(node, numpy_helper)
        initializers += added
        operator = _NAMES.get(node["operator"]) or _WITH_ATTRIBUTES[node["operator"]]
        given = [*map(name, node["inputs"]), *inputs]
        nodes.append(helper.make_node(operator, given, [name(node["output"]["name"])], **attributes))
    values = {node["output"]["name"]: node["output"] for node in layer["nodes"]}
    whole = helper.make_model(
        helper.make_graph(
            nodes,
            layer["prefix"].rstrip("."),
            [described(value) for value in layer["inputs"]],
            [described(values[made]) for made in layer["outputs"].values()],
            initializer=initializers,
        ),
        opset_imports=[helper.make_opsetid("", _OPSET)],
        ir_version=_FORM,
    )
    onnx.save(whole, model)


_WITH_ATTRIBUTES: Mapping[str, str] = {
    "softmax": "Softmax",
    "mean": "ReduceMean",
    "transpose": "Transpose",
    "reshape": "Reshape",
    "slice": "Slice",
    "concat": "Concat",
    "to_float": "Cast",
}


def _details(node: Mapping[str, Any], numpy_helper: Any) -> tuple[list[str], dict[str, Any], list[Any]]:
    """Further inputs of a node, its attributes, and the tensors that these inputs are."""
    import numpy as np

    operator, own = node["operator"], node["output"]["name"]
    attributes: dict[str, Any] = {}
    more: dict[str, list[int]] = {}
    if operator == "softmax":
        attributes["axis"] = -1
    elif operator == "mean":
        attributes["keepdims"], more["axes"] = 1, [-1]
    elif operator == "transpose":
        attributes["perm"] = node["axes"]
    elif operator == "reshape":
        more["shape"] = node["shape"]
    elif operator == "slice":
        more = {"begins": [node["begin"]], "ends": [node["end"]], "axes": [node["axis"]]}
    elif operator == "concat":
        attributes["axis"] = node["axis"]
    elif operator == "to_float":
        attributes["to"] = _kind("float32")
    tensors = [numpy_helper.from_array(np.array(value, "int64"), f"{own}.{kind}") for kind, value in more.items()]
    return [f"{own}.{kind}" for kind in more], attributes, tensors


def _kind(dtype: str) -> Any:
    from onnx import TensorProto

    return {"float32": TensorProto.FLOAT, "int32": TensorProto.INT32}[dtype]


def _numbers(constant: Mapping[str, Any]) -> Any:
    import numpy as np

    value = constant["value"]
    return np.array(constant["numbers"], value["dtype"]).reshape(value["shape"])


def _read(weights: Path) -> dict[str, Any]:
    """Safetensors in float32, without the package."""
    import numpy as np

    content = weights.read_bytes()
    begin = 8 + int.from_bytes(content[:8], "little")
    found = {}
    for name, its in json.loads(content[8:begin]).items():
        first, last = its["data_offsets"]
        found[name] = np.frombuffer(content[begin + first : begin + last], "<f4").reshape(its["shape"])
    return found
