"""`source` (an ONNX file, and the files of its weights, if they are apart) → `model` and `description`.

The model is written anew: with fixed sizes, weights inside, and its messages in one order. So what is compiled does not
depend on what the file was called, nor on who wrote it. Needs onnx.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

_OWN = frozenset({"", "ai.onnx", "ai.onnx.ml"})
_MOST_BYTES = (1 << 31) - 1  # of a message of protobuf


def run(*, source: Path, model: Path, description: Path, sizes: Mapping[str, int], domains: Sequence[str]) -> None:
    import onnx
    from onnx.external_data_helper import load_external_data_for_model

    if source.is_dir():
        # onnx refuses weights behind symbolic links, which inputs are.
        source = Path(shutil.copytree(source, Path(os.environ["TMPDIR"], "source")))
    file = _model_file(source)
    try:
        whole = onnx.load(file, load_external_data=False)
        load_external_data_for_model(whole, str(file.parent))
    except Exception as error:
        raise SystemExit(f"{file.name} is no ONNX model: {_first_line(error)}") from None
    _fix_sizes(whole, sizes)
    if whole.ByteSize() > _MOST_BYTES:
        raise SystemExit(f"{file.name} is larger than the 2 GiB that one ONNX file can hold")
    try:
        onnx.checker.check_model(whole, full_check=True)
    except Exception as error:
        raise SystemExit(f"{file.name} is no valid ONNX model: {_first_line(error)}") from None
    problems = [*_unknown_domains(whole, domains), *_untyped(whole), *_not_finite(whole)]
    if problems:
        raise SystemExit("\n  ".join([f"{file.name} cannot be compiled:", *problems[:20]]))
    for tensor in whole.graph.initializer:
        tensor.ClearField("data_location")  # All weights are inside now, which is what its absence says.
    # What a tool wrote of itself says nothing of the model.
    whole.ClearField("producer_name")
    whole.ClearField("producer_version")
    whole.ClearField("doc_string")
    model.write_bytes(whole.SerializeToString(deterministic=True))
    description.write_text(json.dumps(_described(whole), indent=2) + "\n", encoding="utf-8")


def _model_file(source: Path) -> Path:
    if source.is_file():
        return source
    found = sorted(source.rglob("*.onnx"))
    if len(found) != 1:
        names = ", ".join(path.name for path in found) or "none"
        raise SystemExit(f"a model has one file that ends in .onnx, and there is {names}")
    return found[0]


def _fix_sizes(whole: Any, sizes: Mapping[str, int]) -> None:
    """Give dimensions that have a name a size. What shape inference found before no longer holds."""
    left = dict(sizes)
    for value in (*whole.graph.input, *whole.graph.output):
        for dimension in value.type.tensor_type.shape.dim:
            if dimension.dim_param in sizes:
                left.pop(dimension.dim_param, None)
                dimension.dim_value = sizes[dimension.dim_param]
    if left:
        named = {
            dimension.dim_param
            for value in whole.graph.input
            for dimension in value.type.tensor_type.shape.dim
            if dimension.dim_param
        }
        raise SystemExit(
            f"no input has a size {', '.join(sorted(left))}; there are: {', '.join(sorted(named)) or 'none'}"
        )
    if sizes:
        del whole.graph.value_info[:]


def _unknown_domains(whole: Any, domains: Sequence[str]) -> list[str]:
    allowed = _OWN.union(domains)
    own = {(function.domain, function.name) for function in whole.functions}
    unknown = sorted(
        {
            f"{node.domain}.{node.op_type}"
            for node in _nodes(whole)
            if node.domain not in allowed and (node.domain, node.op_type) not in own
        }
    )
    return (
        [f"operators that ONNX does not have, unless `domains` names theirs: {', '.join(unknown)}"] if unknown else []
    )


def _nodes(whole: Any) -> Iterator[Any]:
    waiting = [*whole.graph.node, *(node for function in whole.functions for node in function.node)]
    while waiting:
        node = waiting.pop()
        yield node
        for attribute in node.attribute:
            waiting += attribute.g.node
            waiting += [inner for graph in attribute.graphs for inner in graph.node]


def _untyped(whole: Any) -> Iterator[str]:
    """Inputs and outputs that a caller cannot make a tensor for."""
    for word, values in (("input", whole.graph.input), ("output", whole.graph.output)):
        for value in values:
            if not value.type.HasField("tensor_type") or not value.type.tensor_type.elem_type:
                yield f"the {word} {value.name} is not a tensor with a type"
            elif not value.type.tensor_type.HasField("shape"):
                yield f"the {word} {value.name} has no shape"


def _not_finite(whole: Any) -> Iterator[str]:
    """Weights with infinities or what is no number: a damaged file, where the graph would still compute."""
    import numpy as np
    from onnx import numpy_helper

    for tensor in whole.graph.initializer:
        values = numpy_helper.to_array(tensor)
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            yield f"the weights {tensor.name} have values that are not finite"


def _described(whole: Any) -> dict[str, Any]:
    import onnx

    operators: dict[str, int] = {}
    for node in _nodes(whole):
        name = f"{node.domain}.{node.op_type}" if node.domain not in ("", "ai.onnx") else node.op_type
        operators[name] = operators.get(name, 0) + 1
    weights = {tensor.name: tensor for tensor in whole.graph.initializer}

    def shape(value: Any) -> list[int | str | None]:
        return [
            each.dim_value if each.HasField("dim_value") else each.dim_param or None
            for each in value.type.tensor_type.shape.dim
        ]

    def tensor(value: Any) -> dict[str, Any]:
        kind = onnx.TensorProto.DataType.Name(value.type.tensor_type.elem_type).lower()
        return {"name": value.name, "type": kind, "shape": shape(value)}

    return {
        "version": 1,
        "opsets": {
            each.domain or "ai.onnx": each.version for each in sorted(whole.opset_import, key=lambda e: e.domain)
        },
        "inputs": [tensor(value) for value in whole.graph.input if value.name not in weights],
        "outputs": [tensor(value) for value in whole.graph.output],
        "operators": dict(sorted(operators.items())),
        "weight_bytes": sum(len(each.raw_data) or each.ByteSize() for each in weights.values()),
    }


def _first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
