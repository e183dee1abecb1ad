"""`model.json` and `parameters.json`: what is written is read again, and nothing else is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlcbuild.compiler import json_values
from mlcbuild.compiler.models.architecture.activation import Activation
from mlcbuild.compiler.models.architecture.decoder import (
    AttentionConfig,
    DecoderConfig,
    FeedForwardConfig,
    NormConfig,
    NormKind,
    NormScope,
    QueryKeyNorm,
    Wiring,
)
from mlcbuild.compiler.models.architecture.rotary import RopeScaling, RotaryEmbedding
from mlcbuild.compiler.models.architecture.rotary_tables import RotaryTable
from mlcbuild.compiler.models.checkpoints.operations import (
    AddOne,
    Concatenate,
    Flatten,
    LogOfNegative,
    Operation,
    Permute,
    Reshape,
    Slice,
    Split,
    Stack,
    result_shape,
)
from mlcbuild.compiler.models.checkpoints.parameters import (
    CheckpointTensor,
    JoinedLayout,
    Parameter,
    ParameterList,
    TensorLayout,
    TiedTensor,
    read_parameters,
    write_parameters,
)
from mlcbuild.compiler.models.description import Layers, ModelDescription, read_model, write_model
from mlcbuild.compiler.models.parameter_role import ParameterRole
from mlcbuild.compiler.models.sizes import ContextLimits, LibrarySizes
from mlcbuild.errors import StageError
from tests.compiler.resolving import model_of, parameters_of
from tests.compiler.tiny_models import TINY

names = st.text(min_size=1, max_size=12)
counts = st.integers(1, 1 << 20)
floats = st.floats(allow_nan=False, allow_infinity=False)
shapes = st.lists(st.integers(1, 6), min_size=1, max_size=3).map(tuple)


@st.composite
def one_operation(draw: st.DrawFn, shape: tuple[int, ...]) -> Operation:
    """Any operation that a tensor of a shape can go through alone."""
    axis = draw(st.integers(0, len(shape) - 1))
    begin = draw(st.integers(0, shape[axis] - 1))
    operations: list[Operation] = [
        Concatenate(axis=axis),
        Stack(axis=axis),
        Slice(axis=axis, begin=begin, end=draw(st.integers(begin + 1, shape[axis]))),
        Permute(axes=draw(st.permutations(range(len(shape))).map(tuple))),
        Reshape(shape=(*shape[::-1], 1)),
        Split(axis=axis, sizes=(shape[axis],)),
        Flatten(axes=axis + 1),
        AddOne(times=draw(st.sampled_from([1, -1]))),
        LogOfNegative(),
    ]
    return draw(st.sampled_from(operations))


@st.composite
def chains(draw: st.DrawFn, shape: tuple[int, ...]) -> tuple[Operation, ...]:
    found: list[Operation] = []
    for _ in range(draw(st.integers(0, 3))):
        found.append(draw(one_operation(result_shape(found, [shape]))))
    return tuple(found)


@st.composite
def parameters(draw: st.DrawFn) -> Parameter:
    stored = draw(shapes)
    one = TensorLayout(name=draw(names), shape=stored, operations=draw(chains(stored)))
    shape = result_shape(one.operations, [stored])
    joined_layout = JoinedLayout(
        tensors=(one, one), operations=(Concatenate(axis=0), Slice(axis=0, begin=0, end=shape[0]))
    )
    gguf = draw(st.sampled_from([one, joined_layout, None]))
    source = CheckpointTensor(name=draw(names), shape=shape, gguf=gguf)
    sources = (source, *(CheckpointTensor(name=name, shape=shape) for name in draw(st.lists(names, max_size=2))))
    joined: tuple[Operation, ...] = (Concatenate(axis=0),) if len(sources) > 1 else ()
    operations = (*joined, *draw(chains(result_shape(joined, [source.shape for source in sources]))))
    return Parameter(
        name=draw(names),
        role=draw(st.sampled_from(ParameterRole)),
        shape=result_shape(operations, [source.shape for source in sources]),
        sources=sources,
        operations=operations,
    )


lists = st.builds(
    ParameterList,
    parameters=st.lists(parameters(), max_size=3).map(tuple),
    ignored=st.lists(names, max_size=2).map(tuple),
    tied=st.lists(
        st.builds(TiedTensor, tensor=st.builds(CheckpointTensor, name=names, shape=shapes), equal_to=names), max_size=1
    ).map(tuple),
)
rotary = st.builds(
    RotaryEmbedding,
    base=floats,
    scaling=st.none()
    | st.builds(RopeScaling, rope_type=st.sampled_from(["linear", "llama3"]), factor=st.floats(1, 99)),
    table=st.none() | st.builds(RotaryTable, frequencies=st.lists(floats, min_size=1, max_size=3).map(tuple)),
)
decoders = st.builds(
    DecoderConfig,
    hidden_size=counts,
    vocab_size=counts,
    num_layers=counts,
    norm=st.builds(NormConfig, epsilon=floats, kind=st.just(NormKind.LAYER), weight=st.booleans(), bias=st.booleans()),
    wiring=st.sampled_from(Wiring),
    attention=st.builds(
        AttentionConfig,
        query_heads=counts,
        key_value_heads=counts,
        head_dim=counts,
        softmax_scale=floats,
        rotary=rotary,
        qkv_bias=st.booleans(),
        query_key_norm=st.none()
        | st.builds(QueryKeyNorm, norm=st.builds(NormConfig, epsilon=floats), scope=st.sampled_from(NormScope)),
    ),
    feed_forward=st.builds(FeedForwardConfig, intermediate_size=counts, activation=st.sampled_from(Activation)),
    tie_word_embeddings=st.booleans(),
)
models = st.builds(
    ModelDescription,
    family=names,
    model_type=names,
    vocab_size=counts,
    layers=st.builds(Layers, name=names, count=counts),
    limits=st.builds(ContextLimits, max_position_embeddings=counts, sliding_window=st.none() | counts),
    sizes=st.builds(
        LibrarySizes,
        context_window_size=st.integers(64, 1 << 20),
        sliding_window_size=st.just(-1),
        attention_sink_size=st.just(0),
        prefill_chunk_size=st.integers(1, 64),
        max_batch_size=counts,
        tensor_parallel_shards=st.just(1),
    ),
    chat_config=st.dictionaries(names, st.none() | floats | names | st.booleans()),
    configuration=decoders.map(json_values.encode),
)


@settings(deadline=None)
@given(lists)
def test_a_list_of_parameters_is_read_as_it_was_written(tmp_path_factory: pytest.TempPathFactory, listed: Any) -> None:
    path = tmp_path_factory.mktemp("parameters") / "parameters.json"
    write_parameters(listed, path)
    assert read_parameters(path) == listed


@settings(deadline=None)
@given(models)
def test_a_model_is_read_as_it_was_written(tmp_path_factory: pytest.TempPathFactory, model: Any) -> None:
    path = tmp_path_factory.mktemp("model") / "model.json"
    write_model(model, path)
    assert read_model(path) == model


@given(decoders)
def test_a_familys_configuration_comes_through_json(config: DecoderConfig) -> None:
    document = json.loads(json.dumps(json_values.encode(config), allow_nan=False))
    assert json_values.decode(DecoderConfig, document, where="configuration") == config


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 2}, r"model\.json is no file of version 1"),
        ({"layers": {"name": "model.layers"}}, r'model\.json, layers lacks the field "count"'),
        ({"vocab_size": True}, r"model\.json, vocab_size is True, which is no int"),
        ({"vocab_size": "300"}, r"vocab_size is '300', which is no int"),
        ({"extra": 1}, r'model\.json has the field "extra", which is not known'),
        ({"sizes": None}, r"sizes is None, which is no dict"),
    ],
)
def test_a_model_that_no_stage_wrote_is_told(tmp_path: Path, change: dict[str, object], message: str) -> None:
    path = tmp_path / "model.json"
    write_model(model_of(TINY), path)
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(StageError, match=message):
        read_model(path)


def test_a_parameter_that_its_sources_do_not_make_is_told(tmp_path: Path) -> None:
    path = tmp_path / "parameters.json"
    write_parameters(parameters_of(TINY), path)
    document = json.loads(path.read_text())
    document["parameters"][0]["shape"] = [1, 64]
    path.write_text(json.dumps(document))
    with pytest.raises(StageError, match=r"parameters\[0\] is damaged: model\.embed_tokens\.weight is \(1, 64\)"):
        read_parameters(path)


def test_what_no_model_depends_on_leaves_no_trace(tmp_path: Path) -> None:
    write_model(model_of(TINY), tmp_path / "one.json")
    write_model(model_of({**TINY, "eos_token_id": 7, "torch_dtype": "float16"}), tmp_path / "other.json")
    assert (tmp_path / "one.json").read_bytes() == (tmp_path / "other.json").read_bytes()


def test_a_context_length_changes_no_parameter() -> None:
    assert parameters_of({**TINY, "max_position_embeddings": 64}) == parameters_of(TINY)
