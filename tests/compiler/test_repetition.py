"""Layers that repeat: two are shown, and put back they are the model that shows all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import tvm
from hypothesis import given
from hypothesis import strategies as st
from tvm import relax

from mlcbuild.compiler import ir
from mlcbuild.compiler.models.compilable import build_model
from mlcbuild.compiler.models.description import Layers
from mlcbuild.compiler.models.repetition import Repetition, repeated_names
from mlcbuild.compiler.passes.repeat_layers import repeat_layers
from mlcbuild.compiler.stages import export
from mlcbuild.errors import InternalError, StageError
from tests.compiler import schemes
from tests.compiler.inlining import inlined
from tests.compiler.resolving import model_builders, model_of, write_resolved
from tests.compiler.tiny_llama import TINY_LLAMA

SCHEME = schemes.scheme("q4f16_1")


def _names(before: int, width: int, count: int, after: int) -> list[str]:
    inside = [f"model.layers.{layer}.p{offset}.weight" for layer in range(count) for offset in range(width)]
    return [*(f"model.first{i}" for i in range(before)), *inside, *(f"model.last{i}" for i in range(after))]


def _layers(count: int) -> Layers:
    return Layers(name="model.layers", count=count)


sizes = {
    "before": st.integers(0, 3),
    "width": st.integers(1, 4),
    "count": st.integers(1, 12),
    "after": st.integers(0, 3),
}


@given(**sizes)
def test_names_of_the_shown_layers_give_those_of_all(before: int, width: int, count: int, after: int) -> None:
    shown = _names(before, width, min(count, 2), after)
    names = repeated_names(shown, _layers(count))
    assert names == _names(before, width, count, after)
    repetition = Repetition.of(names, _layers(count))
    assert repetition == Repetition(before=before, width=width, count=count, after=after)
    assert repetition.length == len(shown)
    assert [repetition.layer(place) for place in range(len(shown))] == [
        int(name.split(".")[2]) if "layers" in name else None for name in shown
    ]


@given(**sizes)
def test_every_parameter_is_reached_from_the_one_that_stands_for_it(
    before: int, width: int, count: int, after: int
) -> None:
    names = _names(before, width, count, after)
    repetition = Repetition.of(names, _layers(count))
    shown = _names(before, width, min(count, 2), after)
    for place, name in enumerate(names):
        stand_in = shown[repetition.stand_in(place)]
        assert stand_in.split(".")[-2:] == name.split(".")[-2:]
    for number, name in enumerate(shown):
        assert names[repetition.place(number)] == name
        if repetition.layer(number) is not None:
            further = [names[repetition.place(number, further=further)] for further in range(repetition.further)]
            assert [int(each.split(".")[2]) for each in further] == [
                repetition.layer(number) + further for further in range(repetition.further)
            ]


def test_a_model_without_layers_has_nothing_that_repeats() -> None:
    repetition = Repetition.of(["a", "b"], _layers(0))
    assert (repetition.shown, repetition.length, repetition.count) == (0, 2, 0)


@pytest.mark.parametrize(
    "names",
    [
        ["model.layers.1.a", "model.layers.0.a"],
        ["model.layers.0.a", "model.layers.0.b", "model.layers.1.a"],
        ["model.layers.0.a", "model.layers.0.b", "model.layers.1.a", "model.layers.1.c"],
        ["model.layers.0.a", "between", "model.layers.1.a"],
    ],
)
def test_layers_that_are_not_alike_do_not_repeat(names: list[str]) -> None:
    with pytest.raises(StageError, match="not alike"):
        Repetition.of(names, _layers(2))


def _exported(directory: Path, config: dict[str, object]) -> tuple[tvm.IRModule, list[str]]:
    write_resolved(directory, config)
    export.run(
        model=directory / "model.json",
        parameters=directory / "parameters.json",
        models=model_builders(),
        module=directory / "module.json",
        metadata=directory / "metadata.json",
        scheme=SCHEME,
        reader=schemes.reader_class(SCHEME),
    )
    metadata = json.loads((directory / "metadata.json").read_text())
    return ir.load_module(directory / "module.json"), [parameter["name"] for parameter in metadata["params"]]


def _with_parameters_in_order(module: tvm.IRModule) -> tvm.IRModule:
    """The module with what reads parameters in front of all else, by their places."""
    functions = {}
    for variable, function in module.functions_items():
        functions[variable] = function
        if not isinstance(function, relax.Function) or not function.params:
            continue
        blocks = []
        for block in function.body.blocks:
            gets = [one for one in block.bindings if isinstance(one.value, relax.TupleGetItem)]
            packed = [one for one in gets if one.value.tuple_value.same_as(function.params[-1])]
            rest = [one for one in block.bindings if one not in packed]
            blocks.append(type(block)([*sorted(packed, key=lambda one: int(one.value.index)), *rest]))
        functions[variable] = relax.Function(
            function.params,
            relax.SeqExpr(blocks, function.body.body),
            function.ret_ty,
            function.is_pure,
            function.attrs,
        )
    return tvm.IRModule(functions)


@pytest.mark.parametrize("layers", [1, 2, 3, 7])
@pytest.mark.parametrize("changes", [{}, {"tie_word_embeddings": False, "attention_bias": True, "mlp_bias": True}])
def test_what_is_put_in_is_the_model_that_shows_all(tmp_path: Path, layers: int, changes: dict[str, object]) -> None:
    document = TINY_LLAMA | {"num_hidden_layers": layers} | changes
    shown, names = _exported(tmp_path, document)
    model = build_model(model_of(document), model_builders(), schemes.reader(SCHEME))
    whole, parameters = model.export_tvm(spec=model.specification())
    assert names == [name for name, _ in parameters]
    put_in = inlined(repeat_layers(shown, names, _layers(layers)))
    expected = inlined(ir.without_spans(whole))
    for variable in expected.get_global_vars():
        assert len(expected[variable].params) == len(put_in[variable.name_hint].params)
    tvm.ir.assert_structural_equal(_with_parameters_in_order(put_in), _with_parameters_in_order(expected))


def test_parameters_that_do_not_fit_the_module_are_refused(tmp_path: Path) -> None:
    shown, names = _exported(tmp_path, TINY_LLAMA | {"num_hidden_layers": 4})
    with pytest.raises(StageError, match=r"takes \d+ parameters, not the \d+"):
        repeat_layers(shown, names[1:], _layers(4))


def test_a_parameter_of_a_layer_used_elsewhere_is_found(tmp_path: Path) -> None:
    shown, names = _exported(tmp_path, TINY_LLAMA | {"num_hidden_layers": 4})
    function = shown["decode"]
    (block,) = function.body.blocks
    place = names.index("model.layers.1.input_layernorm.weight")
    (read,) = [
        one.var
        for one in block.bindings
        if isinstance(one.value, relax.TupleGetItem)
        and one.value.tuple_value.same_as(function.params[-1])
        and int(one.value.index) == place
    ]
    more = relax.VarBinding(relax.DataflowVar("more", read.ty), relax.op.add(read, read))
    last = block.bindings[-1]
    bindings = [*list(block.bindings)[:-1], more, last]
    shown["decode"] = relax.Function(
        function.params,
        relax.SeqExpr([relax.DataflowBlock(bindings)], function.body.body),
        function.ret_ty,
        function.is_pure,
        function.attrs,
    )
    with pytest.raises(InternalError, match="used outside"):
        repeat_layers(shown, names, _layers(4))
