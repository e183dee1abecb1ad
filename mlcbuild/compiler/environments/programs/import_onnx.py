"""`model` (ONNX) → `graph`, `description` and `weights`: TVM's ONNX frontend, for this pipeline. Needs apache-tvm and
onnx.

Weights are no part of the graph: its function takes them last, as one tuple, in the order of the description. Small
tensors, such as a shape or a factor, stay in the graph. A matrix that vectors are multiplied by is stored by rows, as
those of libraries are: the graph transposes it, which costs nothing, because kernels read rows.
"""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

_MOST_IN_GRAPH = 16  # numbers of a tensor that is no weight
_ENTRY = "main"


def run(*, model: Path, graph: Path, description: Path, weights: Path) -> None:
    import numpy as np
    import tvm
    from tvm import relax

    module, values = _imported(model)
    module, values = _apart(module, values)
    module, values = _by_rows(module, values)
    names = [str(each.name) for each in module[_ENTRY].params[int(module[_ENTRY].attrs["num_input"]) :]]
    graph.write_text(str(tvm.ir.save_json(relax.transform.BundleModelParams()(module))), encoding="utf-8")
    described = [{"name": each, "shape": list(values[each].shape), "dtype": str(values[each].dtype)} for each in names]
    document = {"version": 1, "tvm": tvm.__version__, "params": described}
    description.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    with zipfile.ZipFile(weights, "w") as archive:
        for name in names:
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as out:
                np.lib.format.write_array(out, np.ascontiguousarray(values[name]), allow_pickle=False)


def _imported(model: Path) -> tuple[Any, dict[str, Any]]:
    """The module, whose function takes all initializers behind its inputs, and these."""
    import onnx
    import tvm
    from tvm.relax.frontend import detach_params
    from tvm.relax.frontend.onnx import from_onnx

    try:
        module, values = detach_params(from_onnx(onnx.load(model), keep_params_in_input=True))
    except Exception as error:
        raise SystemExit(f"TVM {tvm.__version__} cannot import the model: {error}") from None
    function = module[_ENTRY]
    names = [str(each.name) for each in function.params[int(function.attrs["num_input"]) :]]
    return module, dict(zip(names, (each.numpy() for each in values.get(_ENTRY, ())), strict=True))


def _apart(module: Any, values: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """With what is no weight in the graph, and without what nobody reads."""
    import tvm
    from tvm import relax

    kept = {name: value for name, value in values.items() if not _is_weight(value)}
    module = relax.transform.BindParams(_ENTRY, {name: tvm.runtime.tensor(value) for name, value in kept.items()})(
        module
    )
    function = module[_ENTRY]
    inputs = int(function.attrs["num_input"])
    read = set(relax.analysis.free_vars(function.body))
    params = [each for place, each in enumerate(function.params) if place < inputs or each in read]
    made = relax.Function(params, function.body, function.ret_ty, function.is_pure, function.attrs)
    return _module(made), {str(each.name): values[str(each.name)] for each in params[inputs:]}


def _is_weight(value: Any) -> bool:
    return bool(value.dtype.kind == "f" and value.size > _MOST_IN_GRAPH)


def _by_rows(module: Any, values: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Matrices that are read as the right side of products, and by nobody else, transposed."""
    import tvm
    from tvm import relax
    from tvm.relax.expr_functor import PyExprMutator, mutator

    function = module[_ENTRY]
    product = tvm.ir.Op.get("relax.matmul")
    read: dict[Any, list[bool]] = {}  # for each use of a weight, whether it is one as the right side of a product
    weights = {each for each in function.params if str(each.name) in values}

    def count(node: Any) -> None:
        if isinstance(node, relax.Call):
            for place, argument in enumerate(node.args):
                if isinstance(argument, relax.Var) and argument in weights:
                    read.setdefault(argument, []).append(node.op == product and place == 1)
        elif isinstance(node, relax.Tuple):
            for argument in node.fields:
                if isinstance(argument, relax.Var) and argument in weights:
                    read.setdefault(argument, []).append(False)

    relax.analysis.post_order_visit(function.body, count)
    turned = {}
    for variable, uses in read.items():
        value = values[str(variable.name)]
        if value.ndim == 2 and all(uses):
            turned[variable] = relax.Var(str(variable.name), relax.TensorType(value.shape[::-1], str(value.dtype)))

    @mutator
    class Turned(PyExprMutator):  # type: ignore[misc]
        def visit_var_(self, variable: Any) -> Any:
            if variable in turned:
                return self.builder_.emit(relax.op.permute_dims(turned[variable]))
            return super().visit_var_(variable)

    body = Turned(module).visit_expr(function.body)
    params = [turned.get(each, each) for each in function.params]
    made = relax.Function(params, body, function.ret_ty, function.is_pure, function.attrs)
    names = {str(each.name) for each in turned}
    return _module(made), {name: value.T if name in names else value for name, value in values.items()}


def _module(function: Any) -> Any:
    import tvm

    return tvm.IRModule({tvm.ir.GlobalVar(_ENTRY): function})
