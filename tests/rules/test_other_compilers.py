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
        ('format = "ort"', ("processor:here", "python"), CachePolicy.NON_REPRODUCIBLE),
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


def test_a_module_of_iree_names_its_processor_whatever_builds_it(tmp_path: Path) -> None:
    table = '[[iree_module]]\nname = "m"\nmodel = ":model"\nenvironment = ":made"\ncpu = "znver4"\n'
    locked = ("onnx", "iree-base-compiler")
    found = action(analysed(workspace(tmp_path, table, locked=locked), "//:m"), "CompileIREE")
    assert found.toolchains == ("python",)
    assert isinstance(found.command, StageCall)
    assert "--iree-llvmcpu-target-cpu=znver4" in str(dict(found.command.parameters)["flags"])


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ("", "BUILD.toml:15:8: a module is for one device, and none is named in //:m"),
        (
            'cpu = "znver4"\nhip_target = "gfx942"',
            "BUILD.toml:15:8: a module is for one device, and cpu and hip_target is named in //:m",
        ),
        ('cpu = "zen9"', 'BUILD.toml:18:7: unknown processor "zen9" for x86_64-linux-gnu in //:m'),
        ('cpu = "znver4"\nhost = "vax"', 'BUILD.toml:19:8: libraries cannot be made for the host "vax" in //:m'),
    ],
)
def test_a_module_is_for_one_device_that_is_known(tmp_path: Path, more: str, told: str) -> None:
    table = f'[[iree_module]]\nname = "m"\nmodel = ":model"\nenvironment = ":made"\n{more}\n'
    assert errors(workspace(tmp_path, table, locked=("onnx", "iree-base-compiler"))) == [told]


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ('form = "blob"\nweights = "f16"', "BUILD.toml:19:11: a blob has the weights that it computes with in //:v"),
        ('precision = "bf16"', "BUILD.toml:18:13: precision is for a blob: whoever loads an ir decides it in //:v"),
        (
            'processor = "x86-64-v3"',
            "BUILD.toml:18:13: processor is for a blob: whoever loads an ir decides it in //:v",
        ),
    ],
)
def test_a_form_of_openvino_says_what_it_decides(tmp_path: Path, more: str, told: str) -> None:
    table = f'[[openvino_model]]\nname = "v"\nmodel = ":model"\nenvironment = ":made"\n{more}\n'
    assert errors(workspace(tmp_path, table, locked=("onnx", "openvino"))) == [told]


def test_a_blob_computes_in_float32_on_every_processor(tmp_path: Path) -> None:
    table = '[[openvino_model]]\nname = "v"\nmodel = ":model"\nenvironment = ":made"\nform = "blob"\n'
    found = action(analysed(workspace(tmp_path, table, locked=("onnx", "openvino")), "//:v"), "CompileOpenVINO")
    assert found.toolchains == ("processor:here", "python")
    assert isinstance(found.command, StageCall)
    assert dict(found.command.parameters) == {"precision": "f32"}
