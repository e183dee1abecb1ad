"""The weights of experts: every layout of a checkpoint gives the same shards, and one expert is in memory at a time."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mlcbuild.compiler.models.architecture.mixture import MixtureConfig, RouterConfig, SharedExperts
from mlcbuild.compiler.models.checkpoints.layout import ExpertNames
from mlcbuild.compiler.models.checkpoints.mixture_parameters import LayerPlaces, mixture
from mlcbuild.compiler.models.checkpoints.parameters import Parameter, ParameterList, write_parameters
from mlcbuild.compiler.models.parameter_role import ParameterRole
from mlcbuild.compiler.quantization.scheme import Weight, kept_dtype
from mlcbuild.compiler.stages import import_weights, index_weights, quantize
from mlcbuild.compiler.weights.operations import carry_out
from mlcbuild.compiler.weights.safetensors_file import write_safetensors
from mlcbuild.compiler.weights.tensor import Tensor, TensorDescription, dtype_of
from mlcbuild.errors import StageError
from tests.compiler import schemes
from tests.compiler.checkpoint_layouts import checkpoint_layouts
from tests.compiler.resolving import readers
from tests.compiler.tiny_models import Array

_LAYER = "model.layers.0"
_GATE, _UP, _GATE_UP = (f"blk.0.ffn_{name}_exps.weight" for name in ("gate", "up", "gate_up"))
_NAMES = ExpertNames(module="block_sparse_moe", gate="w1", up="w3", down="w2")


def _parameters(experts: int, hidden: int, inner: int, *, shared: bool = True) -> ParameterList:
    config = MixtureConfig(
        experts=experts,
        experts_per_token=1,
        intermediate_size=inner,
        router=RouterConfig(correction_bias=True),
        shared=SharedExperts(intermediate_size=inner, gated=True) if shared else None,
    )
    places = LayerPlaces(own=_LAYER, checkpoint=_LAYER, gguf="blk.0")
    return ParameterList(parameters=tuple(mixture(places, config, hidden, _NAMES)))


def _write(path: Path, layout: str, tensors: Mapping[str, Array]) -> Path:
    if layout == "gguf":
        return _write_gguf(path.with_suffix(".gguf"), tensors)
    described = [TensorDescription(name=name, dtype="float32", shape=array.shape) for name, array in tensors.items()]
    path = path.with_suffix(".safetensors")
    write_safetensors(path, described, lambda one: Tensor(description=one, data=tensors[one.name]))
    return path


def _write_gguf(path: Path, tensors: Mapping[str, Array]) -> Path:
    import gguf

    writer = gguf.GGUFWriter(path, "llama")
    for name, tensor in tensors.items():
        writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _imported(directory: Path, source: Path) -> list[Path]:
    directory.mkdir(exist_ok=True)
    import_weights.run(
        readers=readers(),
        source=source,
        parameters=source.parent / "parameters.json",
        manifest=directory / "manifest.json",
        shards=directory / "shards",
    )
    entries = json.loads((directory / "manifest.json").read_text())["shards"]
    return [directory / "shards" / entry["file"] for entry in entries]


class _Watched:
    """An encoder that remembers the largest array that it was given of experts."""

    def __init__(self, quantization: str) -> None:
        self.inner = schemes.encoder(schemes.scheme(quantization))
        self.largest = 0

    def encode(self, weight: Weight, numbers: Array) -> tuple[Array, ...]:
        if weight.role is ParameterRole.EXPERTS:
            self.largest = max(self.largest, numbers.size)
        return self.inner.encode(weight, numbers)

    def decode(self, weight: Weight, stored: Sequence[Array]) -> Array:
        return self.inner.decode(weight, stored)

    def error_bound(self, weight: Weight, numbers: Array) -> Array:
        return self.inner.error_bound(weight, numbers)


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    experts=st.integers(1, 5),
    hidden=st.sampled_from([32, 64]),
    inner=st.sampled_from([32, 96]),
    quantization=st.sampled_from(["q4f16_1", "q4f32_1", "q3f16_0", "q4f16_2", "q0f32", "q0bf16"]),
)
def test_every_layout_gives_the_same_shards_and_one_expert_is_in_memory(
    tmp_path_factory: pytest.TempPathFactory, experts: int, hidden: int, inner: int, quantization: str
) -> None:
    directory = tmp_path_factory.mktemp("layouts")
    parameters = _parameters(experts, hidden, inner)
    write_parameters(parameters, directory / "parameters.json")
    checkpoints = checkpoint_layouts(parameters)
    shards = {
        layout: _imported(directory / layout, _write(directory / f"of_{layout}", layout, tensors))
        for layout, tensors in checkpoints.items()
    }
    assert {layout: [path.read_bytes() for path in paths] for layout, paths in shards.items()} == {
        layout: [path.read_bytes() for path in shards["apart"]] for layout in shards
    }
    scheme, watched = schemes.scheme(quantization), _Watched(quantization)
    (shard,) = shards["apart"]
    quantize.run(
        shard=shard,
        parameters=directory / "parameters.json",
        shard_out=directory / "shard.bin",
        records=directory / "records.json",
        scheme=scheme,
        encoder=lambda _: watched,
        index=0,
    )
    assert watched.largest == 2 * inner * hidden
    index_weights.run(
        records=(directory / "records.json",),
        parameters=directory / "parameters.json",
        index=directory / "tensor-cache.json",
        scheme=scheme,
    )
    content = (directory / "shard.bin").read_bytes()
    records = {entry["name"]: entry for entry in json.loads((directory / "records.json").read_text())["records"]}
    for parameter in parameters.parameters:
        sources = [checkpoints["apart"][tensor.name] for tensor in parameter.sources]
        whole = carry_out(parameter.operations, sources).astype(dtype_of(kept_dtype(parameter, scheme.model_dtype)))
        for stored, array in zip(scheme.stored(parameter), watched.encode(parameter, whole), strict=True):
            entry = records[stored.name]
            assert content[entry["byteOffset"] : entry["byteOffset"] + entry["nbytes"]] == array.tobytes()
            assert tuple(entry["shape"]) == stored.shape == array.shape


def test_the_router_is_never_quantized_and_experts_are() -> None:
    stored = [
        tensor.name.removeprefix(f"{_LAYER}.mlp.")
        for parameter in _parameters(2, 32, 32).parameters
        for tensor in schemes.scheme("q4f16_1").stored(parameter)
    ]
    assert stored == [
        "gate.weight",
        "e_score_correction_bias",
        "moe_gate_up_proj.q_weight",
        "moe_gate_up_proj.q_scale",
        "moe_down_proj.q_weight",
        "moe_down_proj.q_scale",
        "shared_expert.gate_up_proj.q_weight",
        "shared_expert.gate_up_proj.q_scale",
        "shared_expert.down_proj.q_weight",
        "shared_expert.down_proj.q_scale",
        "shared_expert_gate.weight",
    ]


def test_the_parts_of_stacked_experts_are_the_experts() -> None:
    gate_up = _parameters(3, 4, 2).parameters[2]
    arrays = {tensor.name: np.random.default_rng(1).random(tensor.shape) for tensor in gate_up.sources}

    def made(parameter: Parameter) -> Array:
        return carry_out(parameter.operations, [arrays[tensor.name] for tensor in parameter.sources])

    assert [part.shape for part in gate_up.parts] == [(1, 4, 4)] * 3
    np.testing.assert_array_equal(np.concatenate([made(part) for part in gate_up.parts]), made(gate_up))
    router = _parameters(3, 4, 2).parameters[0]
    assert router.parts == (router,)


def _fused_in_gguf(tensors: Mapping[str, Array]) -> dict[str, Array]:
    """The tensors of a GGUF file with gate and up of all experts in one."""
    kept = {name: tensor for name, tensor in tensors.items() if name not in (_GATE, _UP)}
    return {**kept, _GATE_UP: np.concatenate([tensors[_GATE], tensors[_UP]], axis=1)}


def test_gate_and_up_of_a_gguf_file_may_be_one_tensor(tmp_path: Path) -> None:
    parameters = _parameters(3, 32, 64)
    write_parameters(parameters, tmp_path / "parameters.json")
    tensors = checkpoint_layouts(parameters)["gguf"]
    apart, fused = (
        _imported(tmp_path / name, _write(tmp_path / f"of_{name}", "gguf", each))
        for name, each in (("apart", tensors), ("fused", _fused_in_gguf(tensors)))
    )
    assert [path.read_bytes() for path in fused] == [path.read_bytes() for path in apart]


def test_fused_experts_of_a_gguf_file_that_cannot_be_are_told(tmp_path: Path) -> None:
    parameters = _parameters(2, 32, 64, shared=False)
    write_parameters(parameters, tmp_path / "parameters.json")
    tensors = checkpoint_layouts(parameters)["gguf"]
    fused = _fused_in_gguf(tensors)
    uneven, both = {**fused, _GATE_UP: fused[_GATE_UP][:, :127]}, {**fused, _UP: tensors[_UP]}
    for name, each, message in (
        ("uneven", uneven, r"ffn_gate_up_exps\.weight is \[2, 127, 32\], which is not gate and up"),
        ("both", both, r"there are both blk\.0\.ffn_up_exps\.weight and blk\.0\.ffn_gate_up_exps\.weight"),
        ("other", {**fused, _GATE_UP: fused[_GATE_UP][:, :64]}, "does not fit the model"),
    ):
        with pytest.raises(StageError, match=message):
            _imported(tmp_path / name, _write(tmp_path / f"of_{name}", "gguf", each))


@pytest.mark.parametrize(
    ("layout", "message"),
    [
        ("apart", "missing: model.layers.0.block_sparse_moe.experts.1.w3.weight 4×4"),
        ("fused", "missing: model.layers.0.block_sparse_moe.experts.0.w1.weight 4×4"),
        ("gguf", "missing: blk.0.ffn_gate_exps.weight 2×4×4"),
    ],
)
def test_an_expert_that_is_missing_is_told(tmp_path: Path, layout: str, message: str) -> None:
    parameters = _parameters(2, 4, 4, shared=False)
    write_parameters(parameters, tmp_path / "parameters.json")
    tensors = checkpoint_layouts(parameters)[layout]
    left_out = ("experts.1.w3.weight", "gate_up_proj", "ffn_gate_exps.weight")
    kept = {name: tensor for name, tensor in tensors.items() if not name.endswith(left_out)}
    with pytest.raises(StageError) as raised:
        _imported(tmp_path / "out", _write(tmp_path / "model", layout, kept))
    assert any(message in line for line in raised.value.advice)


def test_fused_experts_of_another_number_are_told(tmp_path: Path) -> None:
    write_parameters(_parameters(2, 4, 4, shared=False), tmp_path / "parameters.json")
    tensors = checkpoint_layouts(_parameters(3, 4, 4, shared=False))["fused"]
    with pytest.raises(StageError) as raised:
        _imported(tmp_path / "out", _write(tmp_path / "model", "fused", tensors))
    assert any("gate_up_proj is 3×8×4 and has to be 2×8×4" in line for line in raised.value.advice)
