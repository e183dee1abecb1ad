"""A model that a Python file makes: `source` → `exported` and `description`; its weights, checked; and both together.

The program is torch.export's, with zeros in place of the weights, so that what is compiled of it does not depend on
them. It holds no places in the source: an edit that changes no operator gives the same bytes. Needs torch and
safetensors.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_NAME = "model"  # of the file that torch writes, which names the folder in its archive
_SHOWN = 10


def export(*, source: Path, exported: Path, description: Path, function: str, arguments: Mapping[str, Any]) -> None:
    """`function` returns the module and its example inputs, and may return torch's dynamic shapes as a third."""
    import torch

    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    module, inputs, shapes = _made(source, function, arguments)
    # torch.export takes inputs that are one tensor for one input, also where only the example has it twice.
    inputs = torch.utils._pytree.tree_map(lambda value: value.clone() if torch.is_tensor(value) else value, inputs)
    module.eval()
    with torch.no_grad():
        for value in module.state_dict().values():
            value.zero_()
    try:
        whole = torch.export.export(module, inputs, dynamic_shapes=shapes)
    except Exception as error:
        raise SystemExit(f"torch {torch.__version__} cannot export the model: {_first_line(error)}") from None
    finally:
        sys.modules.pop(_NAME, None)
    _save(whole, exported)
    description.write_text(json.dumps(_described(whole), indent=2) + "\n", encoding="utf-8")


def check_weights(*, weights: tuple[Path, ...], description: Path, checked: Path) -> None:
    """Write the weights that the model has, of all files, in one order. Others, and wrong ones, are refused."""
    import safetensors
    import torch

    wanted = {each["name"]: each for each in json.loads(description.read_text(encoding="utf-8"))["weights"]}
    found: dict[str, Any] = {}
    for file in weights:
        try:
            read = _read(file)
        except Exception as error:
            raise SystemExit(f"{file.name} is no safetensors file: {_first_line(error)}") from None
        if twice := sorted(found.keys() & read.keys()):
            raise SystemExit(f"{file.name} has {twice[0]}, which a file before it has as well")
        found |= read
    problems = [f"{name} is missing" for name in sorted(wanted.keys() - found.keys())]
    problems += [f"the model has no {name}" for name in sorted(found.keys() - wanted.keys())]
    for name in sorted(wanted.keys() & found.keys()):
        value, its = found[name], wanted[name]
        stated = {"type": _type(value.dtype), "shape": list(value.shape)}
        if stated != {key: its[key] for key in stated}:
            problems.append(
                f"{name} is {stated['type']} {stated['shape']}, and the model has {its['type']} {its['shape']}"
            )
        elif value.is_floating_point() and not torch.isfinite(value).all():
            problems.append(f"{name} has values that are not finite")
    if problems:
        more = [f"… and {len(problems) - _SHOWN} more"] if len(problems) > _SHOWN else []
        raise SystemExit("\n  ".join(["the weights do not fit the model:", *problems[:_SHOWN], *more]))
    written: Any = {
        name: {
            "dtype": _type(value.dtype),
            "shape": list(value.shape),
            "data": value.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes(),
        }
        for name, value in sorted(found.items())
    }
    safetensors.serialize_file(written, checked, metadata=None)


def bind(*, exported: Path, weights: Path, bound: Path, decompose: bool) -> None:
    """The program with its weights; with `decompose`, of core ATen operators alone."""
    import torch

    warnings.simplefilter("ignore")
    whole = torch.export.load(str(exported))
    if decompose:
        whole = whole.run_decompositions()
    state = whole.state_dict
    with torch.no_grad():
        for name, value in _read(weights).items():
            state[name].copy_(value)
    _save(whole, bound)


def _read(file: Path) -> dict[str, Any]:
    """Not by safetensors.torch, which needs what its metadata do not name."""
    import safetensors

    with safetensors.safe_open(file, framework="pt") as opened:
        return {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118  # It is no mapping.


def _made(source: Path, function: str, arguments: Mapping[str, Any]) -> tuple[Any, tuple[Any, ...], Any]:
    import torch

    specification = importlib.util.spec_from_file_location(_NAME, source)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[_NAME] = module
    specification.loader.exec_module(module)
    make = getattr(module, function, None)
    if not callable(make):
        raise SystemExit(f"{source.name} has no function {function}")
    made = make(**arguments)
    parts = len(made) if isinstance(made, tuple) else 1
    if parts not in (2, 3) or not isinstance(made[0], torch.nn.Module) or not isinstance(made[1], tuple):
        raise SystemExit(
            f"{function} of {source.name} returns no module and its example inputs: write `return module, (x,)`"
        )
    return made[0], made[1], made[2] if parts == 3 else None


def _save(whole: Any, file: Path) -> None:
    """torch writes where in a source, at what path, each operator comes from. That is left out."""
    import torch

    for graph in whole.graph_module.modules():
        if isinstance(graph, torch.fx.GraphModule):
            for node in graph.graph.nodes:
                node.meta.pop("stack_trace", None)
    written = Path(os.environ["TMPDIR"], f"{_NAME}.pt2")
    torch.export.save(whole, str(written))
    shutil.move(written, file)


def _described(whole: Any) -> dict[str, Any]:
    kinds = {
        each.arg.name: each.target
        for each in whole.graph_signature.input_specs
        if each.kind.name in ("PARAMETER", "BUFFER") and each.persistent is not False
    }
    operators: dict[str, int] = {}
    for node in whole.graph.nodes:
        if node.op == "call_function":
            operators[str(node.target)] = operators.get(str(node.target), 0) + 1
    by_name = {node.name: node.meta["val"] for node in whole.graph.nodes if "val" in node.meta}
    return {
        "version": 1,
        "inputs": [_tensor(name, by_name.get(name)) for name in whole.graph_signature.user_inputs],
        "outputs": [_tensor(str(name), by_name.get(str(name))) for name in whole.graph_signature.user_outputs],
        "operators": dict(sorted(operators.items())),
        "weights": sorted((_tensor(kinds[name], by_name[name]) for name in kinds), key=lambda each: str(each["name"])),
    }


def _tensor(name: str, value: Any) -> dict[str, Any]:
    if not hasattr(value, "dtype"):
        return {"name": name, "type": type(value).__name__, "shape": []}
    shape = [size if isinstance(size, int) else str(size) for size in value.shape]
    return {"name": name, "type": _type(value.dtype), "shape": shape}


def _type(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


def _first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
