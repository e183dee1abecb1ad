"""Layers that repeat: one of each kind is shown, and the last; put back they are the model that shows all."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import tvm
from hypothesis import given
from hypothesis import strategies as st
from tvm import relax

from mlcbuild.compiler import ir
from mlcbuild.compiler.json_values import decode, encode
from mlcbuild.compiler.models.architecture.decoder import DecoderConfig, LayerKind
from mlcbuild.compiler.models.architecture.repetition import Repetition, repeated_names, shown_layers
from mlcbuild.compiler.models.checkpoints.decoder_parameters import decoder_parameters
from mlcbuild.compiler.models.checkpoints.layout import CheckpointLayout
from mlcbuild.compiler.models.checkpoints.parameters import write_parameters
from mlcbuild.compiler.models.compilable import build_model
from mlcbuild.compiler.models.description import Layers, write_model
from mlcbuild.compiler.passes.repeat_layers import repeat_layers
from mlcbuild.compiler.stages import export
from mlcbuild.errors import InternalError, StageError
from tests.compiler import schemes
from tests.compiler.inlining import inlined
from tests.compiler.resolving import model_builders, model_of, write_resolved
from tests.compiler.tiny_llama import TINY_LLAMA

SCHEME = schemes.scheme("q4f16_1")


WIDTHS = {"a": 2, "b": 1, "c": 3}


def _names(before: int, kinds: Sequence[str], after: int) -> list[str]:
    inside = [
        f"model.layers.{layer}.{kind}{offset}.weight"
        for layer, kind in enumerate(kinds)
        for offset in range(WIDTHS[kind])
    ]
    return [*(f"model.first{i}" for i in range(before)), *inside, *(f"model.last{i}" for i in range(after))]


def _layers(count: int) -> Layers:
    return Layers(name="model.layers", count=count)


sizes = {
    "before": st.integers(0, 3),
    "kinds": st.lists(st.sampled_from(sorted(WIDTHS)), max_size=12).map(tuple),
    "after": st.integers(0, 3),
}


@given(**sizes)
def test_names_of_the_shown_layers_give_those_of_all(before: int, kinds: tuple[str, ...], after: int) -> None:
    layers = Layers(name="model.layers", count=len(kinds), kinds=kinds)
    names = _names(before, kinds, after)
    shown = _names(before, [kinds[number] for number in shown_layers(layers)], after)
    assert repeated_names(shown, layers) == names
    repetition = Repetition.of(names, layers)
    assert len(repetition.parameters) == len(shown)
    for name, in_module in zip(repetition.parameters, shown, strict=True):
        assert repetition.layer(name) == (int(in_module.split(".")[2]) if "layers" in in_module else None)


@given(**sizes)
def test_each_layer_has_one_of_its_kind_that_stands_for_it(before: int, kinds: tuple[str, ...], after: int) -> None:
    layers = Layers(name="model.layers", count=len(kinds), kinds=kinds)
    shown = shown_layers(layers)
    assert list(dict.fromkeys(kinds)) == list(dict.fromkeys(kinds[number] for number in shown))
    assert len(shown) <= len(set(kinds)) + 1
    repetition = Repetition.of(_names(before, kinds, after), layers)
    for number, kind in enumerate(kinds):
        assert kinds[shown[repetition.stand_in(number)]] == kind
    for name in repetition.names:
        like = repetition.shown_like(name)
        assert like in repetition.parameters
        assert like.split(".")[-2:] == name.split(".")[-2:]


@pytest.mark.parametrize(
    ("kinds", "shown"),
    [
        ("", []),
        ("a", [0]),
        ("aaaa", [0, 3]),
        ("ab", [0, 1]),
        ("aaab", [0, 3]),
        ("abbb", [0, 1, 3]),
        ("abab", [0, 1, 3]),
        ("aabac", [0, 2, 4]),
    ],
)
def test_the_first_layer_of_each_kind_is_shown_and_the_last(kinds: str, shown: list[int]) -> None:
    assert list(shown_layers(Layers(name="model.layers", count=len(kinds), kinds=tuple(kinds)))) == shown
    if len(set(kinds)) == 1:
        assert list(shown_layers(_layers(len(kinds)))) == shown


@pytest.mark.parametrize(
    "names",
    [
        ["model.layers.1.a", "model.layers.0.a"],
        ["model.layers.0.a", "model.layers.0.b", "model.layers.1.a"],
        ["model.layers.0.a", "model.layers.0.b", "model.layers.1.a", "model.layers.1.c", "model.layers.2.a"],
        ["model.layers.0.a", "between", "model.layers.1.a", "model.layers.2.a"],
        ["model.layers.0.a", "model.layers.1.a", "model.layers.2.a", "model.layers.3.a"],
    ],
)
def test_layers_of_one_kind_that_are_not_alike_do_not_repeat(names: list[str]) -> None:
    with pytest.raises(StageError, match="not alike"):
        Repetition.of(names, _layers(3))


def test_each_layer_has_one_kind() -> None:
    with pytest.raises(ValueError, match="3 layers have 2 kinds"):
        Layers(name="model.layers", count=3, kinds=("a", "b"))


def _exported(directory: Path, config: dict[str, object]) -> tuple[tvm.IRModule, list[str]]:
    write_resolved(directory, config)
    return _export(directory)


def _export(directory: Path) -> tuple[tvm.IRModule, list[str]]:
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


def _with_kinds(kinds: str) -> DecoderConfig:
    """A decoder whose layers differ: in what they compute, and in how many parameters they have, and how large ones."""
    config = decode(DecoderConfig, model_of(TINY_LLAMA).configuration, where="configuration")
    return replace(
        config,
        num_layers=len(kinds),
        kinds=(
            LayerKind(name="a"),
            LayerKind(name="b", attention=replace(config.attention, softmax_scale=0.5)),
            LayerKind(name="c", feed_forward=replace(config.feed_forward, intermediate_size=96, bias=True)),
        ),
        kinds_of_layers=tuple(kinds),
    )


@pytest.mark.parametrize("kinds", ["aba", "abcabcab", "aaaabc", "cbbbba", "abbbb"])
def test_layers_of_several_kinds_are_put_in_where_they_belong(tmp_path: Path, kinds: str) -> None:
    config = _with_kinds(kinds)
    model = replace(model_of(TINY_LLAMA), layers=config.layers, configuration=encode(config))
    write_model(model, tmp_path / "model.json")
    write_parameters(decoder_parameters(config, CheckpointLayout(gguf_interleaves=True)), tmp_path / "parameters.json")
    shown, names = _export(tmp_path)
    built = build_model(model, model_builders(), schemes.reader(SCHEME))
    whole, parameters = built.export_tvm(spec=built.specification())
    assert names == [name for name, _ in parameters]
    put_in = inlined(repeat_layers(shown, names, config.layers))
    expected = inlined(ir.without_spans(whole))
    tvm.ir.assert_structural_equal(_with_parameters_in_order(put_in), _with_parameters_in_order(expected))


def test_the_module_does_not_grow_with_the_number_of_layers(tmp_path: Path) -> None:
    modules = []
    for count in (2, 8):
        config = _with_kinds("abc" * count)
        model = replace(model_of(TINY_LLAMA), layers=config.layers, configuration=encode(config))
        write_model(model, tmp_path / "model.json")
        layout = CheckpointLayout(gguf_interleaves=True)
        write_parameters(decoder_parameters(config, layout), tmp_path / "parameters.json")
        module, _ = _export(tmp_path)
        # The cache has room for all layers.
        modules.append({name: one for name, one in module.functions_items() if "kv_cache" not in name.name_hint})
    few, many = (tvm.IRModule(functions) for functions in modules)
    tvm.ir.assert_structural_equal(few, many)


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
