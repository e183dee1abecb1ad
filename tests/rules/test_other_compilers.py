"""Rules of other compilers: what reaches the actions, and mistakes that are told at load."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlcbuild.engine.action import CachePolicy, StageCall
from mlcbuild.errors import WorkspaceErrors
from tests.rules.world import action, analysed, write

PIN = "--hash=sha256:" + "0123456789abcdef" * 4
HEAD = """\
[workspace]
name = "test"

[[python_environment]]
name = "made"
lock = "lock.txt"
license = "MIT"

[[onnx_model]]
name = "model"
source = "model.onnx"
environment = ":made"
"""
LOCKED = ("onnx", "onnxruntime")


def workspace(root: Path, tables: str, *, locked: tuple[str, ...] = LOCKED, head: str = HEAD) -> Path:
    lock = "".join(f"{name}==1.0 {PIN}\n" for name in locked)
    return write(root, {"BUILD.toml": f"{head}\n{tables}", "lock.txt": lock, "model.onnx": "", "other.txt": ""})


def errors(root: Path) -> list[str]:
    with pytest.raises(WorkspaceErrors) as raised:
        analysed(root, "//...")
    return [str(error).splitlines()[0] for error in raised.value.errors]


def ort(more: str = "", name: str = "made") -> str:
    return f'[[ort_model]]\nname = "ort"\nmodel = ":model"\nenvironment = ":{name}"\n{more}'


@pytest.mark.parametrize(
    ("more", "toolchains", "cache"),
    [
        ("", ("processor:here", "python"), CachePolicy.ALL),
        ('processor = "x86-64-v3"', ("processor:x86-64-v3", "python"), CachePolicy.ALL),
        ('level = "extended"', ("python",), CachePolicy.ALL),
        ('format = "ort"', ("processor:here", "python"), CachePolicy.LOCAL),
    ],
)
def test_an_optimized_model_is_for_a_processor_at_the_level_all_alone(
    tmp_path: Path, more: str, toolchains: tuple[str, ...], cache: CachePolicy
) -> None:
    found = action(analysed(workspace(tmp_path, ort(more)), "//:ort"), "OptimizeOnnx")
    assert (found.toolchains, found.cache) == (toolchains, cache)
    assert isinstance(found.command, StageCall)
    assert dict(found.command.plugins) == {"program": "mlcbuild.compiler.environments.programs.optimize_onnx:run"}
    assert dict(found.command.inputs) == {"environment": "in/environment/", "model": "in/model/model.onnx"}


def test_a_processor_for_a_level_that_depends_on_none_is_told(tmp_path: Path) -> None:
    told = errors(workspace(tmp_path, ort('level = "basic"\nprocessor = "x86-64-v3"')))
    assert told == ['BUILD.toml:19:13: level "basic" does not depend on a processor in //:ort']


def test_a_compiler_that_the_lock_does_not_have_is_told(tmp_path: Path) -> None:
    assert errors(workspace(tmp_path, ort(), locked=("numpy",))) == [
        "BUILD.toml:12:15: //:made has no onnx in //:model",
    ]
    assert errors(workspace(tmp_path, ort(), locked=("onnx",))) == [
        "BUILD.toml:17:15: //:made has no onnxruntime in //:ort",
    ]


@pytest.mark.parametrize(
    ("table", "told"),
    [
        ("sizes = { batch = 0 }", "BUILD.toml:13:9: the size batch = 0 is no whole number above 0 in //:model"),
        ("sizes = { batch = true }", "BUILD.toml:13:9: the size batch = True is no whole number above 0 in //:model"),
    ],
)
def test_a_size_is_a_whole_number(tmp_path: Path, table: str, told: str) -> None:
    assert errors(workspace(tmp_path, "", head=HEAD + table)) == [told]


def test_a_source_has_one_model(tmp_path: Path) -> None:
    head = HEAD.replace("model.onnx", "other.txt")
    assert errors(workspace(tmp_path, "", head=head)) == [
        "BUILD.toml:11:10: source is no files that end in .onnx in //:model"
    ]
