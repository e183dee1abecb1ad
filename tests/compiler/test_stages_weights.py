"""From a checkpoint to the weights of a package, stage by stage, on a tiny model."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from mlcbuild.compiler.models.checkpoints.operations import Operation, Permute, Reshape, Slice
from mlcbuild.compiler.models.checkpoints.parameters import CheckpointTensor, Parameter, ParameterList, write_parameters
from mlcbuild.compiler.models.parameter_role import ParameterRole
from mlcbuild.compiler.quantization import stored_parts
from mlcbuild.compiler.stages import import_weights, index_weights
from mlcbuild.errors import StageError
from tests.compiler import schemes
from tests.compiler.resolving import readers
from tests.compiler.staged_weights import imported, quantized, stored
from tests.compiler.tiny_models import TINY, TINY_QWEN2, Array, checkpoint, write_gguf, write_torch


@pytest.fixture
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_weights, "SHARD_ELEMENTS", 30_000)


def source(directory: Path, tensors: Mapping[str, Array]) -> Path:
    folder = directory / "source"
    folder.mkdir()
    save_file(dict(tensors), folder / "model.safetensors")
    return folder


@pytest.mark.parametrize("config", [TINY, TINY_QWEN2], ids=lambda config: str(config["model_type"]))
def test_every_format_imports_to_the_same_bytes(config: Mapping[str, object], tmp_path: Path) -> None:
    tensors = checkpoint(config)
    made = {}
    for kind in ("safetensors", "torch", "gguf"):
        (tmp_path / kind).mkdir()
        if kind == "safetensors":
            path = source(tmp_path / kind, tensors)
        elif kind == "torch":
            path = write_torch(tmp_path / kind / "x.bin", tensors)
        else:
            path = write_gguf(tmp_path / kind / "x.gguf", tensors, config)
        imported(tmp_path / kind, path, config)
        shards = sorted((tmp_path / kind / "shards").iterdir())
        made[kind] = [(shard.name, shard.read_bytes()) for shard in shards]
    assert made["safetensors"] == made["torch"] == made["gguf"]


@pytest.mark.usefixtures("small_shards")
def test_shards_keep_together_what_one_parameter_fuses(tmp_path: Path) -> None:
    tensors = checkpoint()
    manifest = imported(tmp_path, source(tmp_path, tensors))
    assert manifest["version"] == 1
    assert len(manifest["shards"]) > 2
    place = {name: shard["file"] for shard in manifest["shards"] for name in shard["tensors"]}
    assert place.keys() == tensors.keys()
    for layer in range(2):
        prefix = f"model.layers.{layer}"
        assert len({place[f"{prefix}.self_attn.{which}_proj.weight"] for which in "qkv"}) == 1
        assert len({place[f"{prefix}.mlp.{which}_proj.weight"] for which in ("gate", "up")}) == 1
    for shard in manifest["shards"]:
        assert sorted(load_file(tmp_path / "shards" / shard["file"])) == sorted(shard["tensors"])


@pytest.mark.usefixtures("small_shards")
def test_parameters_of_one_tensor_stay_with_it_and_are_made_of_their_parts(tmp_path: Path) -> None:
    tensors = {
        "first": np.arange(40_000, dtype=np.float32).reshape(200, 200),
        "between": np.ones((200, 200), np.float32),
        "last": np.arange(800, dtype=np.float32).reshape(2, 400),
    }
    first, between, last = (CheckpointTensor(name=name, shape=array.shape) for name, array in tensors.items())
    listed = ParameterList(
        parameters=(
            matrix("upper", (50, 200), first, Slice(axis=0, begin=0, end=50)),
            matrix("between", (200, 200), between),
            matrix("lower", (200, 150), first, Slice(axis=0, begin=50, end=200), Permute(axes=(1, 0))),
            matrix("reshaped", (2, 20, 20), last, Reshape(shape=(2, 20, 20))),
        )
    )
    write_parameters(listed, tmp_path / "parameters.json")
    import_weights.run(
        readers=readers(),
        source=source(tmp_path, tensors),
        parameters=tmp_path / "parameters.json",
        manifest=tmp_path / "manifest.json",
        shards=tmp_path / "shards",
    )
    shards = json.loads((tmp_path / "manifest.json").read_text())["shards"]
    assert [shard["tensors"] for shard in shards] == [["first"], ["between"], ["last"]]
    found = stored(tmp_path, quantized(tmp_path, "q0f32"))
    np.testing.assert_array_equal(found["upper"], tensors["first"][:50])
    np.testing.assert_array_equal(found["lower"], tensors["first"][50:].T)
    np.testing.assert_array_equal(found["between"], tensors["between"])
    np.testing.assert_array_equal(found["reshaped"], tensors["last"].reshape(2, 20, 20))


def matrix(name: str, shape: tuple[int, ...], source: CheckpointTensor, *operations: Operation) -> Parameter:
    return Parameter(name=name, role=ParameterRole.LINEAR, shape=shape, sources=(source,), operations=operations)


def test_bad_tensors_are_listed_together(tmp_path: Path) -> None:
    tensors = checkpoint()
    tensors["model.norm.weight"] = tensors["model.norm.weight"][:-1]
    del tensors["model.layers.1.mlp.up_proj.weight"]
    tensors["model.layers.2.mlp.up_proj.weight"] = np.ones((96, 64), np.float32)
    tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = np.ones(8, np.float32)
    with pytest.raises(StageError) as caught:
        imported(tmp_path, source(tmp_path, tensors))
    assert "3 tensors do not match" in caught.value.message
    assert caught.value.advice == (
        "missing: model.layers.1.mlp.up_proj.weight 96×64",
        "of another shape: model.norm.weight is 63 and has to be 64",
        "unknown: model.layers.2.mlp.up_proj.weight 96×64",
    )


def test_a_head_that_equals_the_embedding_of_a_tied_model_is_ignored(tmp_path: Path) -> None:
    tensors = checkpoint()
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"]
    manifest = imported(tmp_path, source(tmp_path, tensors), {**TINY, "tie_word_embeddings": True})
    names = [name for shard in manifest["shards"] for name in shard["tensors"]]
    assert "lm_head.weight" not in names
    assert "model.embed_tokens.weight" in names


def test_a_head_of_its_own_is_refused_where_config_json_ties_it(tmp_path: Path) -> None:
    """A config.json of one's own beside the source, which ImportConfig does not see."""
    with pytest.raises(StageError, match=r"lm_head\.weight, which is not equal(.|\n)*to false"):
        imported(tmp_path, source(tmp_path, checkpoint()), {**TINY, "tie_word_embeddings": True})


@pytest.mark.usefixtures("small_shards")
@pytest.mark.parametrize("name", ["q4f16_1", "q4f32_1"])
def test_package_weights_are_the_fused_matrices_quantized(tmp_path: Path, name: str) -> None:
    tensors = checkpoint()
    imported(tmp_path, source(tmp_path, tensors))
    document = quantized(tmp_path, name)
    found = stored(tmp_path, document)
    scheme = schemes.scheme(name)
    layer = "model.layers.1"
    for module, parts in ((f"{layer}.self_attn.qkv_proj", "qkv"), (f"{layer}.mlp.gate_up_proj", ("gate", "up"))):
        parent = module.rpartition(".")[0]
        fused = np.concatenate([tensors[f"{parent}.{part}_proj.weight"] for part in parts])
        matrix = schemes.matrix(fused.shape, name=f"{module}.weight")
        packed, scales = schemes.encoder(scheme).encode(matrix, fused.astype(scheme.model_dtype))
        np.testing.assert_array_equal(found[f"{module}.q_weight"], packed)
        np.testing.assert_array_equal(found[f"{module}.q_scale"], scales)
    norm = f"{layer}.input_layernorm.weight"
    np.testing.assert_array_equal(found[norm], tensors[norm].astype(scheme.model_dtype))
    expected = {"model.embed_tokens.q_weight", "lm_head.q_scale", "model.layers.0.mlp.down_proj.q_scale"}
    assert expected <= found.keys()
    assert not any(entry.endswith("proj.weight") for entry in found)


@pytest.mark.usefixtures("small_shards")
def test_index_is_in_the_form_that_mlc_writes(tmp_path: Path) -> None:
    tensors = checkpoint()
    imported(tmp_path, source(tmp_path, tensors))
    document = quantized(tmp_path, "q0f32")
    count = sum(tensor.size for tensor in tensors.values())
    parameters = 1 + 2 * 6 + 1 + 1
    assert document["metadata"] == {"ParamSize": parameters, "ParamBytes": 4 * count, "BitsPerParam": 32.0}
    for number, record in enumerate(document["records"]):
        data = (tmp_path / f"params_shard_{number}.bin").read_bytes()
        assert record["dataPath"] == f"params_shard_{number}.bin"
        assert record["format"] == "raw-shard"
        assert record["nbytes"] == len(data)
        assert record["md5sum"] == hashlib.md5(data).hexdigest()
        offset = 0
        for entry in record["records"]:
            assert entry["format"] == "raw"
            assert entry["byteOffset"] == offset
            assert entry["nbytes"] == 4 * math.prod(entry["shape"])
            offset += entry["nbytes"]
        assert offset == len(data)


def test_tvm_loads_the_weights_from_their_index(tmp_path: Path) -> None:
    import tvm
    import tvm_ffi

    tensors = checkpoint()
    imported(tmp_path, source(tmp_path, tensors))
    for encode in ("raw", "f32-to-bf16"):
        document = quantized(tmp_path, "q0f32", encode=encode)
        ours = stored(tmp_path, document)
        tvm_ffi.get_global_func("vm.builtin.tensor_cache.clear")()
        tvm_ffi.get_global_func("vm.builtin.tensor_cache.load")(str(tmp_path), tvm.cpu().dlpack_device_type(), 0)
        read = tvm_ffi.get_global_func("vm.builtin.param_array_from_cache_by_name")
        for name, found in zip(ours, read(list(ours)), strict=True):
            np.testing.assert_array_equal(found.numpy(), ours[name], err_msg=name)


def test_lossy_encoding_halves_float32_and_rounds_to_bfloat16(tmp_path: Path) -> None:
    tensors = checkpoint()
    imported(tmp_path, source(tmp_path, tensors))
    raw = quantized(tmp_path, "q0f32")
    lossy = quantized(tmp_path, "q0f32", encode="f32-to-bf16")
    assert 2 * sum(record["nbytes"] for record in lossy["records"]) == sum(
        record["nbytes"] for record in raw["records"]
    )
    found = stored(tmp_path, lossy)["model.norm.weight"]
    exact = tensors["model.norm.weight"]
    assert not np.array_equal(found, exact)
    assert (np.abs(found - exact) <= np.abs(exact) * 2.0**-8).all()
    assert not (found.view(np.uint32) & 0xFFFF).any()


def test_group_size_that_does_not_divide_names_the_tensor(tmp_path: Path) -> None:
    config = {**TINY, "intermediate_size": 80}
    imported(tmp_path, source(tmp_path, checkpoint(config)), config)
    with pytest.raises(StageError, match=r"model\.layers\.0\.mlp\.down_proj\.weight has 80 columns"):
        quantized(tmp_path, "q4f16_1")


@pytest.mark.parametrize("name", ["q4f16_1", "q3f16_1", "q0f16", "q8_0_f16", "q4f16_ft", "q4f16_0"])
def test_a_matrix_is_quantized_in_pieces_as_it_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    imported(tmp_path, source(tmp_path, checkpoint()))
    shard = tmp_path / "params_shard_0.bin"
    quantized(tmp_path, name)
    whole = shard.read_bytes()
    monkeypatch.setattr(stored_parts, "_PIECE_ELEMENTS", 1000)  # a few rows
    quantized(tmp_path, name)
    assert shard.read_bytes() == whole


@pytest.mark.parametrize("bad", [np.inf, np.nan, 1e6])
def test_weight_that_the_models_type_cannot_hold_is_told_by_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bad: float
) -> None:
    monkeypatch.setattr(stored_parts, "_PIECE_ELEMENTS", 100)  # a row or two
    tensors = checkpoint()
    tensors["model.layers.1.self_attn.k_proj.weight"][3, 5] = bad
    imported(tmp_path, source(tmp_path, tensors))
    with pytest.raises(StageError, match=r"k_proj\.weight holds .* at \(3, 5\), which is not a finite float16"):
        quantized(tmp_path, "q4f16_1")


def test_index_refuses_records_of_another_quantization(tmp_path: Path) -> None:
    imported(tmp_path, source(tmp_path, checkpoint()))
    quantized(tmp_path, "q4f16_1")
    with pytest.raises(StageError, match="do not hold the weights of q4f32_1"):
        index_weights.run(
            records=(tmp_path / "records_00000.json",),
            parameters=tmp_path / "parameters.json",
            index=tmp_path / "tensor-cache.json",
            scheme=schemes.scheme("q4f32_1"),
        )


def test_stages_give_the_same_bytes_again(tmp_path: Path) -> None:
    made = []
    for name in ("first", "second"):
        directory = tmp_path / name
        directory.mkdir()
        imported(directory, source(directory, checkpoint()))
        quantized(directory, "q4f32_1")
        files = sorted(path for path in directory.rglob("*") if path.is_file())
        made.append([(path.relative_to(directory), path.read_bytes()) for path in files])
    assert made[0] == made[1]
