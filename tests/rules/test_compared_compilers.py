"""Which builds a comparison runs, and by what; and what a search of schedules is true of."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlcbuild.engine.action import CachePolicy, StageCall
from tests.rules.test_other_compilers import JAX, RUN, TORCH, errors, jax, torch, workspace, xla
from tests.rules.world import action, analysed

SEARCHING = (*RUN, "psutil")
RUNTIMES = "mlcbuild.compiler.environments.runtimes"
WEIGHTS = 'weights = "weights.safetensors"'
IREE = '[[iree_module]]\nname = "i"\nmodel = ":s"\nenvironment = ":made"\ncpu = "znver4"\n'
PROGRAM = '[[torch_exported_program]]\nname = "p"\nmodel = ":t"\nenvironment = ":made"\n'
EXECUTORCH = '[[executorch_program]]\nname = "e"\nprogram = ":p"\nenvironment = ":made"\n'
TUNED = """
[[relax_tuning]]
name = "found"
model = ":model"
environment = ":made"
cpu = "x86-64-v3"
trials = 7

[[relax_module]]
name = "m"
model = ":model"
environment = ":made"
cpu = "x86-64-v3"
records = ":found"
"""


OURS = """
[[platform]]
name = "cpu"
kind = "cpu"
cpu = "x86-64-v3"

[[onnx_library]]
name = "ours"
model = ":model"
environment = ":made"
platform = ":cpu"
"""


def measured(*builds: str) -> str:
    named = ", ".join(f'":{build}"' for build in builds)
    return f'[[compile_comparison]]\nname = "c"\nmodel = ":model"\nenvironment = ":made"\nbuilds = [{named}]\n'


def test_each_build_is_run_by_the_runtime_of_its_rule(tmp_path: Path) -> None:
    tables = (torch('cpu = "x86-64-v3"'), PROGRAM, EXECUTORCH, jax(xla(), more=WEIGHTS), IREE, TUNED)
    names = ("l", "p", "e", "x", "i", "m")
    root = workspace(
        tmp_path,
        "\n".join([*tables, measured(*names)]),
        locked=tuple({*TORCH, *JAX, *SEARCHING, "executorch"}),
    )
    found = action(analysed(root, "//:c"), "MeasureModels")
    assert isinstance(found.command, StageCall)
    runtimes = ("torch_aoti", "torch_program", "executorch_method", "xla", "iree_vm", "relax_vm")
    assert list(dict(found.command.plugins).values()) == [f"{RUNTIMES}.{runtime}:load" for runtime in runtimes]
    models = dict(found.command.parameters)["models"]
    assert isinstance(models, list)
    assert [each["compiler"] for each in models] == [
        "AOTInductor",
        "PyTorch uncompiled",
        "ExecuTorch",
        "XLA",
        "IREE",
        "TVM MetaSchedule",
    ]
    assert {each["version"] for each in models} == {"1.0"}


@pytest.mark.parametrize(("tables", "name"), [(xla(), "x"), (IREE, "i")])
def test_a_build_of_a_module_without_weights_is_not_compared(tmp_path: Path, tables: str, name: str) -> None:
    told = f"//:{name} is for a device whose runtime is not measured, or of a model without weights in //:c"
    locked = tuple({*JAX, *RUN})
    assert any(told in each for each in errors(workspace(tmp_path, jax(tables) + measured(name), locked=locked)))


def test_weights_compile_nothing_of_a_module(tmp_path: Path) -> None:
    found = analysed(workspace(tmp_path, jax(xla(), more=WEIGHTS), locked=JAX), "//:x")
    for mnemonic in ("ExportStableHLO", "CompileXLA"):
        command = action(found, mnemonic).command
        assert isinstance(command, StageCall)
        assert not [name for name, _ in command.inputs if name in ("weights", "checked")], mnemonic
    checked = action(found, "CheckWeights").command
    assert isinstance(checked, StageCall)
    assert [name for name, _ in checked.inputs] == ["description", "environment", "weights"]
    wrong = jax(xla(), more='weights = "other.txt"')
    (told,) = errors(workspace(tmp_path / "wrong", wrong, locked=JAX))
    assert "weights has no file that ends in .safetensors in //:s" in told


def test_a_search_is_measured_alone_on_one_machine_and_its_records_are_an_input(tmp_path: Path) -> None:
    analysis = analysed(workspace(tmp_path, TUNED, locked=SEARCHING), "//:m")
    search, built = action(analysis, "SearchSchedules"), action(analysis, "BuildRelax")
    assert search.cache is CachePolicy.LOCAL
    assert search.toolchains == ("machine:here", "python")
    assert search.requirements.cpus > 1000
    assert search.requirements.timeout_seconds == 600 + 7 * 30
    assert isinstance(search.command, StageCall)
    target = {"kind": "llvm", "mtriple": "x86_64-unknown-linux-gnu", "mcpu": "x86-64-v3"}
    wanted = {"target": {**target, "num-cores": 1}, "trials": 7, "seed": 0, "candidate_seconds": 30}
    assert dict(search.command.parameters) == wanted
    assert dict(search.command.inputs)["graph"] == "in/graph/model.onnx"
    (graph,) = (item.artifact for item in search.inputs if item.path == "in/graph/model.onnx")
    assert graph == action(analysis, "BlankOnnx").output("out/model.onnx"), "weights search for nothing"
    assert built.cache is CachePolicy.ALL
    assert isinstance(built.command, StageCall)
    assert dict(built.command.inputs)["records"] == "in/records/records.json"

    pinned = TUNED.replace('records = ":found"', 'records = "other.txt"')
    found = analysed(workspace(tmp_path / "pinned", pinned, locked=SEARCHING), "//:m")
    assert "SearchSchedules" not in {each.mnemonic for each in found.actions}


@pytest.mark.parametrize(
    ("was", "wrong", "told"),
    [
        ("trials = 7", "trials = 0", '"trials" must be at least 1'),
        ('cpu = "x86-64-v3"\ntrials', 'cpu = "x86-64-v9"\ntrials', 'unknown processor "x86-64-v9"'),
        ("trials = 7", "trials = 7\nthreads = 0", '"threads" must be at least 1'),
        ("trials = 7", "trials = 7\ncandidate_seconds = 0", '"candidate_seconds" must be at least 1'),
    ],
)
def test_a_mistake_in_a_search_is_told_at_load(tmp_path: Path, was: str, wrong: str, told: str) -> None:
    found = errors(workspace(tmp_path, TUNED.replace(was, wrong), locked=SEARCHING))
    assert any(told in each for each in found), found


def test_where_a_device_is_required_any_machine_with_it_measures_and_no_key_names_one(tmp_path: Path) -> None:
    tables = (torch('cpu = "x86-64-v3"'), measured("l"))
    locked = tuple({*TORCH, *RUN})
    here = action(analysed(workspace(tmp_path / "here", "\n".join(tables), locked=locked), "//:c"), "MeasureModels")
    assert here.cache is CachePolicy.LOCAL
    assert "machine:here" in here.toolchains
    wanted = "".join((*tables, 'requirements = { labels = { arch = "sm_90" } }\n'))
    there = action(analysed(workspace(tmp_path / "there", wanted, locked=locked), "//:c"), "MeasureModels")
    assert there.cache is CachePolicy.NONE
    assert "machine:here" not in there.toolchains
    assert dict(there.requirements.labels) == {"arch": "sm_90"}
    assert there.requirements.cpus == here.requirements.cpus > 1000, "nothing else runs there meanwhile"


def test_a_library_of_an_onnx_model_takes_the_stages_of_a_library(tmp_path: Path) -> None:
    root = workspace(tmp_path, OURS + measured("ours"), locked=RUN)
    found = analysed(root, "//:ours", "//:c")
    target = action(found, "Phase1").command
    assert isinstance(target, StageCall)
    assert dict(target.inputs) == {"module": "in/module/module.json"}
    lower = action(found, "Lower").command
    assert isinstance(lower, StageCall)
    assert "model" not in dict(lower.inputs), "it is no model of ours, with sizes and layers"
    measuring = action(found, "MeasureModels").command
    assert isinstance(measuring, StageCall)
    assert list(dict(measuring.plugins).values()) == [f"{RUNTIMES}.relax_vm:load"]
    assert not [each for each in found.actions if each.mnemonic == "Phase0"]


def test_a_library_of_an_onnx_model_for_another_device_is_not_compared(tmp_path: Path) -> None:
    device = 'name = "cpu"\nkind = "cuda"\narch = ["sm_90"]\n'
    tables = OURS.replace('name = "cpu"\nkind = "cpu"\ncpu = "x86-64-v3"\n', device)
    found = analysed(workspace(tmp_path, tables, locked=RUN), "//:ours")
    assert action(found, "Link").command
    told = "//:ours is for a device whose runtime is not measured"
    assert any(told in each for each in errors(workspace(tmp_path, tables + measured("ours"), locked=RUN)))
