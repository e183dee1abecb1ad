"""Models and libraries that cannot be used: what is said, the exit code, and a cache that is still right."""

from __future__ import annotations

import importlib.metadata
import json
import re
from pathlib import Path

import pytest

from tests.compiler.test_file_formats import POINTER
from tests.compiler.tiny_models import TINY, checkpoint, write_gguf
from tests.end_to_end.world import World

EXPECTED = Path(__file__).parent / "expected"

HEAD = """\
[workspace]
name = "models"

[[platform]]
name = "cpu"
kind = "cpu"
cpu = "x86-64-v2"
"""

MODEL = """
[[model]]
name = "{name}"
{attribute} = "{file}"

[[{rule}]]
name = "{name}-{rule}"
model = ":{name}"
quantization = "{quantization}"
platform = ":cpu"
"""


def model(name: str, file: str, *, rule: str = "model_library", quantization: str = "q4f32_1") -> str:
    attribute = "config" if file.endswith(".json") else "source"
    return MODEL.format(name=name, file=file, attribute=attribute, rule=rule, quantization=quantization)


def config(world: World, name: str, **changes: object) -> str:
    """A config.json without what `changes` says is None."""
    merged = {**TINY, **changes}
    world.write(f"{name}.json", json.dumps({key: value for key, value in merged.items() if value is not None}))
    return model(name, f"{name}.json")


@pytest.mark.slow
def test_every_bad_model_is_told_with_what_is_wrong_and_nothing_of_it_is_kept(world: World) -> None:
    whole = write_gguf(world.folder / "whole.gguf", checkpoint()).read_bytes()
    for name, size in (("header", 40), ("tensors", len(whole) - 5000), ("empty", 0)):
        world.write(f"files/{name}.gguf", whole[:size])
    world.write("files/no.gguf", "<html>404</html>" * 100)
    world.write("files/pointer/config.json", json.dumps(TINY))
    world.write("files/pointer/tokenizer.json", POINTER.decode())
    world.write("files/adapter/adapter_config.json", '{"peft_type": "LORA", "base_model_name_or_path": "a/base"}')
    world.write("files/no-tokenizer/config.json", json.dumps(TINY))
    tables = [
        model("truncated-header", "files/header.gguf", rule="model_package"),
        model("truncated-tensors", "files/tensors.gguf", rule="model_package"),
        model("empty", "files/empty.gguf", rule="model_package"),
        model("no-gguf", "files/no.gguf", rule="model_package"),
        model("pointer", "files/pointer", rule="model_package"),
        model("adapter", "files/adapter", rule="model_package"),
        model("no-tokenizer", "files/no-tokenizer", rule="model_package"),
    ]
    world.write("BUILD.toml", "\n".join([HEAD, *tables]))
    done = world.build("--keep-going")
    assert done.code == 1
    assert "Traceback" not in done.err
    told = [line for line in done.err.splitlines() if " failed after " in line or line.startswith("    ")]
    said = "\n".join(line.partition("] ")[2] or line for line in sorted_by_target(told)) + "\n"
    assert said == (EXPECTED / "bad_models.txt").read_text()
    world.verify()


def test_a_bad_configuration_is_told_with_its_place_before_anything_runs(world: World) -> None:
    world.write("no-json.json", '{"model_type": "llama", ')
    tables = [
        model("no-json", "no-json.json"),
        config(world, "missing-field", hidden_size=None),
        config(world, "absurd-heads", num_attention_heads=0),
        config(world, "absurd-layers", num_hidden_layers=-3),
        config(world, "wrong-type", hidden_size="many"),
        config(world, "uneven-heads", num_attention_heads=4, num_key_value_heads=3),
        config(world, "unknown-family", model_type="mamba"),
        config(world, "group-size", hidden_size=72, num_attention_heads=4, num_key_value_heads=2, head_dim=18),
        config(world, "huge", hidden_size=1 << 40),
    ]
    world.write("BUILD.toml", "\n".join([HEAD, *tables]))
    done = world.build("--keep-going")
    assert (done.code, done.out) == (7, "")
    said = re.sub(r'("model_type" is .*\n  known: ).*', r"\1…", done.err)  # the types of all families
    assert said == (EXPECTED / "bad_configurations.txt").read_text()


def sorted_by_target(lines: list[str]) -> list[str]:
    """Failures by name, with the lines of advice that follow each."""
    groups: list[list[str]] = []
    for line in lines:
        if line.startswith("["):
            groups.append([line])
        elif groups:
            groups[-1].append(line)
    return [line for group in sorted(groups, key=lambda group: group[0].partition("] ")[2]) for line in group]


@pytest.mark.slow
def test_a_model_that_is_mended_is_built(world: World) -> None:
    whole = write_gguf(world.folder / "whole.gguf", checkpoint()).read_bytes()
    world.write("model.gguf", whole[:-5000])
    table = """
[[model]]
name = "m"
source = "model.gguf"

[[quantized_weights]]
name = "w"
model = ":m"
quantization = "q4f32_1"
"""
    world.write("BUILD.toml", HEAD + table)
    assert world.build(":w").code == 1
    assert not world.output("w").exists()
    world.write("model.gguf", whole)
    assert world.build(":w").code == 0
    assert world.build(":w").actions.keys() == {"up_to_date"}
    world.verify()


def with_ffi(world: World, version: str) -> str:
    """A folder for PYTHONPATH in which another version of tvm-ffi seems to be installed."""
    found = importlib.metadata.distribution("apache-tvm-ffi")
    information = world.folder / f"site-{version}" / f"apache_tvm_ffi-{version}.dist-info"
    information.mkdir(parents=True)
    for name in ("METADATA", "RECORD"):
        (information / name).write_text((found.read_text(name) or "").replace(found.version, version))
    return str(information.parent)


def test_a_wrong_version_of_tvm_ffi_is_told_before_anything_runs(world: World) -> None:
    table = config(world, "model")
    world.write("BUILD.toml", HEAD + table)
    done = world.process("build", ":all", PYTHONPATH=with_ffi(world, "0.1.15"))
    assert done.code == 36
    first, *rest = done.err.splitlines()
    assert first.startswith("error: apache-tvm-ffi 0.1.15 is installed beside ")
    assert first.endswith("; mlcbuild needs 0.1.14.*, because newer ones crash while they save TVM's IR")
    assert rest == [
        f'  run: python -m pip install "apache-tvm-ffi=={importlib.metadata.version("apache-tvm-ffi")}"',
        "this may be retried: this machine failed, not your targets",
    ]
    assert not (world.root / "mlcbuild-out").exists()


def test_what_needs_no_tvm_is_built_with_any_tvm_ffi(world: World) -> None:
    world.commands(
        '[[command]]\nname = "x"\ntool = ":sh"\noutputs = ["x"]\narguments = ["-c", "echo > $0", "{outputs}"]\n'
    )
    done = world.process("build", ":all", PYTHONPATH=with_ffi(world, "0.1.15"))
    assert done.code == 0, done.err
