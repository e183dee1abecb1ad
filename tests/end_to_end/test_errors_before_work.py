"""What BUILD.toml and config.json alone show is told before anything runs: place, exit code 7, and all together."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.compiler.tiny_llama import TINY_LLAMA
from tests.compiler.tiny_models import ONE_TOKEN
from tests.end_to_end.world import World

CONFIGS: dict[str, dict[str, object]] = {
    "tiny": TINY_LLAMA,
    "unknown-type": {**TINY_LLAMA, "model_type": "lama"},
    "unknown-scaling": {**TINY_LLAMA, "rope_scaling": {"rope_type": "spiral", "factor": 2.0}},
    "odd-groups": {**TINY_LLAMA, "hidden_size": 48},
}
QUANTIZED = {**TINY_LLAMA, "quantization_config": {"quant_method": "aqlm"}}
MODELS = "".join(f'[[model]]\nname = "{name}"\nconfig = "{name}.json"\n' for name in CONFIGS)
RIGHT = """\
[[platform]]
name = "cpu"
kind = "cpu"
cpu = "x86-64-v3"

[[tool]]
name = "sh"
path = "/bin/sh"
"""
_WRONG = """\
[[platform]]
name = "unknown-cpu"
kind = "cpu"
cpu = "x86-64-v33"

[[platform]]
name = "unlinked"
kind = "cpu"
cpu = "sifive-u74"
host = "riscv64-linux-gnu"

[[platform]]
name = "unknown-arch"
kind = "cuda"
arch = ["sm_9O"]

[[model_library]]
name = "no-batch"
model = ":tiny"
quantization = "q4f16_1"
platform = ":cpu"
overrides = { max_batch_size = 0 }

[[model_library]]
name = "bogus"
model = ":tiny"
quantization = "q4f16_1"
platform = ":cpu"
overrides = { bogus = 1 }

[[model_library]]
name = "chunk-beyond-context"
model = ":tiny"
quantization = "q4f16_1"
platform = ":cpu"
overrides = { context_window_size = 128, prefill_chunk_size = 256 }

[[model_library]]
name = "window-of-llama"
model = ":tiny"
quantization = "q4f16_1"
platform = ":cpu"
overrides = { sliding_window_size = 64 }

[[model_library]]
name = "groups"
model = ":odd-groups"
quantization = "q4f16_1"
platform = ":cpu"

[[model_library]]
name = "of-an-unknown-type"
model = ":unknown-type"
quantization = "q4f16_1"
platform = ":cpu"

[[model_library]]
name = "of-an-unknown-scaling"
model = ":unknown-scaling"
quantization = "q4f16_1"
platform = ":cpu"

[[command]]
name = "unknown-key"
tool = ":sh"
arguments = ["-c", "true"]
outputs = ["x"]
requirements = { cpsu = 2 }

[[model]]
name = "quantized-weights"
source = "checkpoint"
"""
WRONG = [f"{block}\n" for block in _WRONG.strip().split("\n\n")]


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    for name, document in CONFIGS.items():
        made.write(f"{name}.json", json.dumps(document))
    made.write("checkpoint/config.json", json.dumps(QUANTIZED))
    made.write("checkpoint/tokenizer.json", ONE_TOKEN)
    made.write("checkpoint/model.safetensors", "")
    return made


def test_every_error_of_the_workspace_is_told_before_anything_runs(world: World) -> None:
    world.write("BUILD.toml", '[workspace]\nname = "errors"\n' + RIGHT + MODELS + "".join(WRONG))
    told = world.mlcbuild("build", "//...")
    assert (told.code, told.out) == (7, "")
    said = re.sub(r'("model_type" is .*\n  known: ).*(?= {8}did)', r"\1…", told.err)  # the types of all families
    assert said == (Path(__file__).parent / "expected/errors_before_work.txt").read_text()
    assert not world.store.exists()  # no action has run


@pytest.mark.parametrize("name", [block.split('name = "')[1].partition('"')[0] for block in WRONG])
def test_one_wrong_target_alone_ends_the_build_with_its_place(world: World, name: str) -> None:
    (block,) = (block for block in WRONG if f'name = "{name}"' in block)
    world.write("BUILD.toml", '[workspace]\nname = "errors"\n' + RIGHT + MODELS + block)
    told = world.mlcbuild("build", f"//:{name}")
    assert told.code == 7
    assert re.match(r"BUILD\.toml:\d+:\d+: ", told.err)
    assert not world.store.exists()


def test_of_a_model_that_is_made_the_error_is_told_before_anything_else_of_its_targets_starts(world: World) -> None:
    world.write(
        "BUILD.toml",
        """\
[workspace]
name = "made"
[[tool]]
name = "cp"
path = "/bin/cp"
[[command]]
name = "copied"
tool = ":cp"
inputs = ["odd-groups.json"]
arguments = ["{inputs}", "{outputs}"]
outputs = ["config.json"]
[[model]]
name = "made"
config = ":copied"
[[platform]]
name = "cpu"
kind = "cpu"
cpu = "x86-64-v3"
[[model_library]]
name = "library"
model = ":made"
quantization = "q4f16_1"
platform = ":cpu"
overrides = { context_window_size = 128, prefill_chunk_size = 256 }
""",
    )
    built = world.build("--keep-going", ":library")
    assert built.code == 1
    assert "//:library ConfigureModel failed" in built.err
    assert "the prefill_chunk_size is 256" in built.err
    assert "groups of 32 do not divide" in built.err
    # The copy and ResolveModel; then everything else of the library waits for what failed.
    assert built.actions == {"executed_local": 2, "failed": 1, "skipped": 8}
