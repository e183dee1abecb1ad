"""Adapters of a model are merged by actions of their own, and what they do not change is quantized once."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from tests.compiler.test_lora import QUERY, write_adapter
from tests.compiler.tiny_models import ONE_TOKEN, TINY, checkpoint
from tests.end_to_end.world import HEAD, World


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path)
    world.write("plain/config.json", json.dumps(TINY))
    world.write("plain/tokenizer.json", ONE_TOKEN)
    save_file(checkpoint(), world.root / "plain/model.safetensors")
    write_adapter(world.root / "style")
    return world


def model(name: str, *lines: str) -> str:
    more = "".join(f"{line}\n" for line in lines)
    return (
        f'[[model]]\nname = "{name}-model"\nsource = "plain"\n{more}\n'
        f'[[quantized_weights]]\nname = "{name}"\nmodel = ":{name}-model"\nquantization = "q4f32_1"\n'
    )


# An adapter that another action makes, as one that is fetched does.
COPIED = """
[[command]]
name = "copied"
tool = ":sh"
inputs = ["style/adapter_config.json", "style/adapter_model.safetensors"]
outputs = ["adapter_config.json", "adapter_model.safetensors"]
arguments = ["-c", "cp $0 $2; cp $1 $3", "{inputs}", "{outputs}"]
"""


@pytest.mark.slow
def test_an_adapter_changes_the_weights_of_its_model_alone(world: World) -> None:
    tables = (
        model("base"),
        COPIED,
        model("styled", 'lora = ["style"]'),
        model("copied-style", 'lora = [":copied"]'),
        model("none", 'lora = ["style"]', "lora_shares = { style = 0 }"),
        model("twice", 'lora = ["style", ":copied"]', 'lora_shares = { style = 3, ":copied" = -2 }'),
    )
    world.write("BUILD.toml", "\n".join([HEAD, *tables]))
    done = world.build(":all")
    assert done.code == 0, done.err

    def shard(name: str) -> bytes:
        return (world.output(name) / "params_shard_0.bin").read_bytes()

    assert shard("base") == shard("none")
    assert shard("base") != shard("styled")
    assert shard("styled") == shard("copied-style")
    assert (
        abs(np.frombuffer(shard("twice"), np.uint8).astype(int) - np.frombuffer(shard("styled"), np.uint8)).mean() < 1
    )
    assert world.build(":all").actions.keys() == {"up_to_date"}
    world.write("style/README.md", "about the style")
    assert world.build(":all").actions.keys() == {"up_to_date"}


def test_what_is_wrong_with_adapters_is_told_with_its_place(world: World) -> None:
    write_adapter(world.root / "other", {f"{QUERY}x.lora_A.weight": np.ones((4, 64), np.float32)})
    for lines, message in (
        (('lora = ["plain"]',), "adapter //:plain holds no adapter_config.json"),
        (('lora = ["style", "style"]',), '//:style appears twice in "lora"'),
        (('lora = ["style"]', "lora_shares = { other = 1 }"), "other is none of the adapters in `lora`"),
        (('lora = ["style"]', 'lora_shares = { style = "1" }'), "the share of style is 1; it has to be a number"),
    ):
        world.write("BUILD.toml", "\n".join([HEAD, model("m", *lines)]))
        done = world.build(":all")
        assert done.code == 7
        assert message in done.err
    world.write("BUILD.toml", "\n".join([HEAD, model("m", 'lora = ["other"]')]))
    done = world.build(":all")
    assert done.code == 1
    told = '"adapters" of //:m/0 is damaged: of model.layers.1.self_attn.q_projx.weight it has lora_A alone'
    assert told in done.err
    assert not world.output("m").exists()


@pytest.mark.exhaustive
def test_a_shard_that_an_adapter_does_not_change_is_quantized_once(world: World) -> None:
    """The embedding is a shard of its own: 128 MiB, counted in float32."""
    config = {**TINY, "vocab_size": (128 << 20) // 4 // 64}
    world.write("plain/config.json", json.dumps(config))
    save_file(checkpoint(config), world.root / "plain/model.safetensors")
    world.write("BUILD.toml", "\n".join([HEAD, model("base")]))
    assert world.build(":all").code == 0
    world.write("BUILD.toml", "\n".join([HEAD, model("base"), model("styled", 'lora = ["style"]')]))
    done = world.build(":styled", "-v")
    assert done.code == 0, done.err
    ran = [line for line in done.err.splitlines() if "//:styled MergeLora" in line or "//:styled Quantize" in line]
    assert [line.split()[2] for line in ran] == ["MergeLora"] * 3 + ["Quantize"]
