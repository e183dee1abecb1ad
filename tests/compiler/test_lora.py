"""LoRA adapters are merged as PEFT merges them; what is not computed is refused by name."""

from __future__ import annotations

import contextlib
import json
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from mlcbuild.compiler.models.checkpoints.parameters import write_parameters
from mlcbuild.compiler.stages import import_weights, merge_lora
from mlcbuild.compiler.weights.checkpoint import sources_of
from mlcbuild.compiler.weights.lora import LoraAdapter
from mlcbuild.errors import StageError
from tests.compiler.resolving import parameters_of, readers
from tests.compiler.tiny_models import TINY, Array, checkpoint
from tests.parity_packages import parity_package

CONFIG: Mapping[str, object] = {"peft_type": "LORA", "r": 4, "lora_alpha": 6, "target_modules": ["q_proj"]}
QUERY = "model.layers.1.self_attn.q_proj"


def write_adapter(
    folder: Path, tensors: Mapping[str, Array] | None = None, *, prefix: str = "base_model.model.", **changes: object
) -> Path:
    """An adapter of the tiny llama; without `tensors`, one of a query of rank 4."""
    folder.mkdir(parents=True)
    (folder / "adapter_config.json").write_text(json.dumps({**CONFIG, **changes}))
    source = np.random.default_rng(5)
    tensors = tensors or {
        f"{QUERY}.lora_A.weight": source.standard_normal((4, 64)).astype(np.float32),
        f"{QUERY}.lora_B.weight": source.standard_normal((64, 4)).astype(np.float32),
    }
    save_file({prefix + name: tensor for name, tensor in tensors.items()}, folder / "adapter_model.safetensors")
    return folder


def merge(
    folder: Path,
    adapters: list[Path],
    *,
    config: Mapping[str, Any] = TINY,
    shares: tuple[float, ...] = (),
    tensors: Mapping[str, Array] | None = None,
) -> dict[str, Array]:
    """All tensors of a checkpoint after adapters were merged into each imported shard."""
    folder.mkdir(exist_ok=True)
    save_file(dict(tensors or checkpoint(config)), folder / "model.safetensors")
    write_parameters(parameters_of(config), folder / "parameters.json")
    import_weights.run(
        readers=readers(),
        source=folder / "model.safetensors",
        parameters=folder / "parameters.json",
        manifest=folder / "manifest.json",
        shards=folder / "shards",
    )
    (folder / "adapters").mkdir()
    for number, adapter in enumerate(adapters):
        (folder / "adapters" / str(number)).symlink_to(adapter, target_is_directory=True)
    (folder / "merged").mkdir()
    found: dict[str, Array] = {}
    for shard in sorted((folder / "shards").iterdir()):
        merge_lora.run(
            shard=shard,
            parameters=folder / "parameters.json",
            adapters=folder / "adapters",
            merged=folder / "merged" / shard.name,
            shares=list(shares or [1.0] * len(adapters)),
        )
        found |= load_file(folder / "merged" / shard.name)
    return found


def test_a_product_is_added_to_the_weight_and_to_nothing_else(tmp_path: Path) -> None:
    adapter = write_adapter(tmp_path / "adapter")
    merged, before = merge(tmp_path / "model", [adapter]), checkpoint()
    parts = load_file(adapter / "adapter_model.safetensors")
    down, up = (parts[f"base_model.model.{QUERY}.lora_{which}.weight"].astype(np.float64) for which in "AB")
    expected = before.pop(f"{QUERY}.weight") + 6 / 4 * up @ down
    np.testing.assert_allclose(merged.pop(f"{QUERY}.weight"), expected, rtol=1e-5, atol=1e-5)
    for name, tensor in before.items():
        np.testing.assert_array_equal(merged[name], tensor, err_msg=name)


MIXTURE: Mapping[str, Any] = {
    **TINY,
    "model_type": "qwen3_moe",
    "head_dim": 16,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 24,
}


@pytest.mark.parametrize("fused", [False, True], ids=["a tensor for each expert", "all experts in one"])
def test_an_adapter_of_one_expert_changes_that_expert(tmp_path: Path, fused: bool) -> None:
    random = np.random.default_rng(3)
    parameters = parameters_of(MIXTURE).parameters
    before = {tensor.name: random.standard_normal(tensor.shape).astype(np.float32) for tensor in sources_of(parameters)}
    experts = "model.layers.1.mlp.experts"
    adapter = write_adapter(
        tmp_path / "adapter",
        {
            f"{experts}.2.down_proj.lora_A.weight": random.standard_normal((4, 24)).astype(np.float32),
            f"{experts}.2.down_proj.lora_B.weight": random.standard_normal((64, 4)).astype(np.float32),
            f"{experts}.0.up_proj.lora_A.weight": random.standard_normal((4, 64)).astype(np.float32),
            f"{experts}.0.up_proj.lora_B.weight": random.standard_normal((24, 4)).astype(np.float32),
        },
    )
    parts = load_file(adapter / "adapter_model.safetensors")
    expected = dict(before)
    for name in (f"{experts}.2.down_proj", f"{experts}.0.up_proj"):
        down, up = (parts[f"base_model.model.{name}.lora_{which}.weight"] for which in "AB")
        expected[f"{name}.weight"] = before[f"{name}.weight"] + 6 / 4 * up @ down
    merged = merge(tmp_path / "model", [adapter], config=MIXTURE, tensors=_experts_joined(before) if fused else before)
    assert merged.keys() == expected.keys()
    for name, tensor in expected.items():
        np.testing.assert_allclose(merged[name], tensor, rtol=1e-4, atol=1e-5, err_msg=name)


def _experts_joined(tensors: Mapping[str, Array]) -> dict[str, Array]:
    """All experts of a layer in one tensor, as transformers 5 has them."""
    found = {name: tensor for name, tensor in tensors.items() if ".experts." not in name}
    for layer in sorted({name.partition(".experts.")[0] for name in tensors.keys() - found.keys()}):

        def all_of(part: str, layer: str = layer) -> Array:
            return np.stack([tensors[f"{layer}.experts.{number}.{part}_proj.weight"] for number in range(4)])

        found[f"{layer}.experts.gate_up_proj"] = np.concatenate([all_of("gate"), all_of("up")], axis=1)
        found[f"{layer}.experts.down_proj"] = all_of("down")
    return found


def test_several_adapters_are_added_by_their_shares(tmp_path: Path) -> None:
    one, other = write_adapter(tmp_path / "one"), write_adapter(tmp_path / "other", lora_alpha=1)
    both = merge(tmp_path / "both", [one, other], shares=(0.5, -2.0))[f"{QUERY}.weight"]
    alone = merge(tmp_path / "alone", [one])[f"{QUERY}.weight"]
    before = checkpoint()[f"{QUERY}.weight"]
    product = (alone - before) / (6 / 4)
    np.testing.assert_allclose(both - before, product * (0.5 * 6 / 4 - 2 * 1 / 4), rtol=1e-3, atol=1e-5)


def test_a_shard_that_no_adapter_changes_keeps_its_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_weights, "SHARD_ELEMENTS", 20_000)
    merge(tmp_path / "model", [write_adapter(tmp_path / "adapter")])
    shards = sorted((tmp_path / "model" / "shards").iterdir())
    changed = [
        shard.name
        for shard in shards
        if shard.read_bytes() != (shard.parent.parent / "merged" / shard.name).read_bytes()
    ]
    assert len(shards) > 3
    assert len(changed) == 1


def test_weights_of_less_precision_are_merged_in_float32(tmp_path: Path) -> None:
    half = {name: tensor.astype(np.float16) for name, tensor in checkpoint().items()}
    adapter = write_adapter(tmp_path / "adapter")
    merged = merge(tmp_path / "model", [adapter], tensors=half)
    wide = {name: tensor.astype(np.float32) for name, tensor in half.items()}
    expected = merge(tmp_path / "wide", [adapter], tensors=wide)
    assert merged[f"{QUERY}.weight"].dtype == np.float32
    np.testing.assert_array_equal(merged[f"{QUERY}.weight"], expected[f"{QUERY}.weight"])
    assert merged["model.norm.weight"].dtype == np.float16


@pytest.mark.parametrize("fan_in_fan_out", [True, False])
def test_a_weight_that_is_stored_with_its_inputs_first_gets_the_transpose(tmp_path: Path, fan_in_fan_out: bool) -> None:
    """GPT-2's. Where only one way fits, it is taken, as PEFT corrects the field."""
    source = np.random.default_rng(1)
    down, up = (source.standard_normal(shape).astype(np.float32) for shape in ((4, 6), (10, 4)))
    tensors = {"h.0.attn.c_attn.lora_A.weight": down, "h.0.attn.c_attn.lora_B.weight": up}
    adapter = LoraAdapter(write_adapter(tmp_path / "adapter", tensors, fan_in_fan_out=fan_in_fan_out))
    assert not adapter.problem("h.0.attn.c_attn.weight", (6, 10))
    merged = adapter.merged("h.0.attn.c_attn.weight", np.zeros((6, 10), np.float32))
    np.testing.assert_allclose(merged, 6 / 4 * (up @ down).T, rtol=1e-5, atol=1e-5)
    adapter.close()


VARIANTS: Mapping[str, dict[str, object]] = {
    "plain": {"target_modules": ["q_proj", "v_proj", "down_proj"]},
    "rank stabilized": {"target_modules": ["o_proj"], "use_rslora": True, "r": 7},
    "patterns": {
        "target_modules": ["q_proj", "k_proj", "gate_proj"],
        "rank_pattern": {"layers.0.self_attn.q_proj": 2, "k_proj": 3},
        "alpha_pattern": {r"layers\.[1]\.mlp\..*": 20},
    },
    "dora": {"target_modules": ["q_proj", "up_proj"], "use_dora": True},
    "embedding": {"target_modules": ["embed_tokens", "lm_head"]},
    "whole modules": {"target_modules": ["q_proj"], "modules_to_save": ["lm_head"]},
    "biases": {"target_modules": ["q_proj"], "bias": "all"},
}


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("name", VARIANTS)
def test_weights_are_those_that_peft_merges(tmp_path: Path, name: str) -> None:
    peft = parity_package("peft")
    import torch
    import transformers

    config = {**TINY, "attention_bias": name == "biases"}
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**{**config, "torch_dtype": "float32"}))
    before = {key: tensor.numpy().copy() for key, tensor in model.state_dict().items()}
    adapted = peft.get_peft_model(model, peft.LoraConfig(**{"r": 4, "lora_alpha": 6, **VARIANTS[name]}))
    with torch.no_grad():
        for parameter in adapted.parameters():
            if parameter.requires_grad:
                parameter.copy_(torch.randn_like(parameter).abs() + 0.1)
    adapted.save_pretrained(tmp_path / "adapter")
    merged = merge(tmp_path / "model", [tmp_path / "adapter"], config=config, tensors=before)
    expected = {key: tensor.numpy() for key, tensor in adapted.merge_and_unload().state_dict().items()}
    if name == "embedding":  # the file has the embedding itself, too
        assert len(load_file(tmp_path / "adapter" / "adapter_model.safetensors")) > 4
    assert merged.keys() == expected.keys()
    changed = [key for key in expected if not np.array_equal(expected[key], before[key])]
    assert len(changed) >= 2
    for key, tensor in expected.items():
        np.testing.assert_allclose(merged[key], tensor, rtol=2e-5, atol=2e-5, err_msg=key)


OTHERS = "model.layers.9.mlp.up_proj"
ONES = np.ones((4, 64), np.float32)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"peft_type": "IA3"}, r'"peft_type" is \'IA3\'; adapters of LORA can be merged'),
        ({"lora_bias": True}, r'"lora_bias" is True, which is not supported'),
        ({"layer_replication": [[0, 2]]}, r'"layer_replication" is \[\[0, 2\]\], which is not supported'),
        (
            {"target_parameters": ["mlp.experts.down_proj"]},
            r'"target_parameters" is .* all experts together is not supported(.|\n)*merge_and_unload',
        ),
        ({"a_field_of_tomorrow": 1}, r'"a_field_of_tomorrow" is 1, which is not supported'),
        ({"init_lora_weights": "pissa"}, r"the adapter began by changing the weights(.|\n)*merge_and_unload"),
        ({"r": 8}, r"the matrices of .*q_proj\.weight are 4×64 and 64×4, which are not of rank 8"),
        ({"r": 0}, r'"r" is 0; it has to be a number from 1 on'),
        ({"lora_alpha": "6"}, r'"lora_alpha" is \'6\'; it has to be a number'),
        ({"rank_pattern": {"(": 3}}, r"'\(', which is no regular expression"),
        ({"use_dora": True}, r"there are no magnitudes of DoRA"),
        ({"prefix": "base."}, r"which is not named as PEFT names them"),
        ({"tensors": {f"{QUERY}.lora_A.weight": ONES}}, r"is damaged: of .*q_proj\.weight it has lora_A alone"),
        (
            {
                "tensors": {
                    "model.layers.9.mlp.up_proj.lora_A.weight": ONES,
                    "model.layers.9.mlp.up_proj.lora_B.weight": ONES.T,
                }
            },
            r"is no adapter of this model\n.*the model has no model\.layers\.9\.mlp\.up_proj\.weight",
        ),
        (
            {"tensors": {f"{QUERY}.lora_A.weight": ONES, f"{QUERY}.lora_B.weight": np.ones((96, 4), np.float32)}},
            r"q_proj\.weight is 64×64, and the adapter's is 96×64",
        ),
        ({"tensors": {"lm_head.weight": np.ones((301, 64), np.float32)}}, r"is 300×64, and the adapter's is 301×64"),
        ({"tensors": {f"{QUERY}.lora_B.bias": ONES[0]}}, r"biases of LoRA \(lora_bias\) are not supported"),
    ],
)
def test_what_cannot_be_merged_is_refused_by_name(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    adapter = write_adapter(tmp_path / "adapter", **changes)
    with pytest.raises(StageError, match=message):
        merge(tmp_path / "model", [adapter])
    assert not list((tmp_path / "model" / "merged").iterdir())


def test_a_head_that_is_tied_cannot_be_changed_alone(tmp_path: Path) -> None:
    config = {**TINY, "tie_word_embeddings": True}
    adapter = write_adapter(tmp_path / "adapter", {"lm_head.weight": np.ones((300, 64), np.float32)})
    with pytest.raises(StageError, match=r"lm_head\.weight is tied to model\.embed_tokens\.weight"):
        merge(tmp_path / "model", [adapter], config=config)


def test_what_replaces_a_module_cannot_be_added_in_part(tmp_path: Path) -> None:
    adapter = write_adapter(tmp_path / "adapter", {"lm_head.weight": np.ones((300, 64), np.float32)})
    with pytest.raises(StageError, match=r"replaces lm_head\.weight as a whole, .* here 0\.5"):
        merge(tmp_path / "model", [adapter], shares=(0.5,))


def delete(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def truncate(folder: Path) -> None:
    path = folder / "adapter_model.safetensors"
    path.write_bytes(path.read_bytes()[:-8])


def spoil(folder: Path) -> None:
    (folder / "adapter_config.json").write_text("{")


def put_infinity(folder: Path) -> None:
    tensors = load_file(folder / "adapter_model.safetensors")
    next(iter(tensors.values()))[1, 2] = np.inf
    save_file(tensors, folder / "adapter_model.safetensors")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (delete("adapter_config.json"), r"holds no adapter_config\.json\n.*PEFT's save_pretrained"),
        (delete("adapter_model.safetensors"), r"holds no adapter_model\.safetensors"),
        (truncate, r"adapter_model\.safetensors is truncated"),
        (spoil, r"adapter_config\.json is not valid JSON"),
        (put_infinity, r"holds inf at \(1, 2\), which is not a finite float32"),
    ],
)
def test_damage_is_told(tmp_path: Path, damage: Callable[[Path], None], message: str) -> None:
    adapter = write_adapter(tmp_path / "adapter")
    damage(adapter)
    with pytest.raises(StageError, match=message):
        merge(tmp_path / "model", [adapter])


def test_any_field_of_any_value_is_read_or_refused(tmp_path: Path) -> None:
    source = random.Random(0)
    values: list[object] = [None, True, -1, 0.5, "x", [], [1], {}, {"q_proj": 2}, {"q_proj": "x"}, 10**30]
    fields = ("r", "lora_alpha", "rank_pattern", "alpha_pattern", "use_rslora", "fan_in_fan_out", "bias", "use_dora")
    for number in range(60):
        changes: Any = {name: source.choice(values) for name in source.sample(fields, 2)}
        adapter = write_adapter(tmp_path / str(number), **changes)
        with contextlib.suppress(StageError):
            merge(tmp_path / f"model{number}", [adapter])
