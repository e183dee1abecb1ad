"""Passes of a workspace's own, through the command line: the page that teaches them, and what goes wrong."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.compiler.tiny_models import TINY
from tests.end_to_end.kernel_cache import KernelCache
from tests.end_to_end.world import PROJECT, World

PAGE = PROJECT / "docs/pipeline.md"
PASS = "passes/only_called.py"
PLAIN = '\n[[model_library]]\nname = "plain"\nmodel = ":model"\nquantization = "q4f32_1"\nplatform = ":cpu"\n'
NO_KERNEL = {"Phase1", "Phase2", "Phase3", "Partition", "Lower", "Link"}


def written(folder: Path) -> World:
    """The workspace of the page, each block whose first line is a comment with a path being that file; and a model."""
    world = World(folder)
    text = PAGE.read_text(encoding="utf-8")
    for path, content in re.findall(r"^```\w+\n# (\S+\.(?:py|toml))\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        world.write(path, content)
    world.write("config.json", json.dumps(TINY))
    return world


@pytest.fixture(scope="module")
def built(
    tmp_path_factory: pytest.TempPathFactory, warm_workers: Mapping[str, str], kernel_cache: KernelCache
) -> World:
    """The workspace with a second library, without the pass. Both are built."""
    world = written(tmp_path_factory.mktemp("passes"))
    world.environment.update(warm_workers)
    world.write("BUILD.toml", (world.root / "BUILD.toml").read_text() + PLAIN)
    with kernel_cache.used_by(world.root, world.cache):
        done = world.build("//:plain")
    assert done.code == 0, done.err
    assert ran(world, "//:library") == NO_KERNEL
    return world


def ran(world: World, *labels: str) -> set[str]:
    """The mnemonics of the actions that a build runs."""
    events = world.folder / "events"
    done = world.build("--events", str(events), *labels)
    assert done.code == 0, done.err
    found = [json.loads(line) for line in events.read_text().splitlines()]
    return {
        event["mnemonic"]
        for event in found
        if event["event"] == "action_finished" and event["status"] == "executed_local"
    }


def edited(world: World, path: str, old: str, new: str) -> None:
    text = (world.root / path).read_text(encoding="utf-8")
    assert text.count(old) == 1, (path, old)
    world.write(path, text.replace(old, new))


def entry_functions(world: World, label: str) -> set[str]:
    """Which of two entry functions a library has, by the names in its bytecode, which follow their lengths there: the
    metadata name kernels by all functions that they are for."""
    library = world.output(f"{label}/{label}.so").read_bytes()
    names = ("batch_decode", "batch_verify")
    return {name for name in names if len(name).to_bytes(8, "little") + name.encode() in library}


def test_the_pass_of_the_page_changes_its_library_alone(built: World) -> None:
    assert entry_functions(built, "plain") == {"batch_decode", "batch_verify"}
    assert entry_functions(built, "library") == {"batch_decode"}


def test_an_edit_reruns_the_phase_and_what_follows_a_change(built: World) -> None:
    before = (built.root / PASS).read_text()
    try:
        edited(built, PASS, "NEVER_CALLED = ", "# A comment.\nNEVER_CALLED = ")
        assert ran(built, "//:library", "//:plain") == set()
        edited(built, PASS, '("batch_verify",)', '("batch_verify", "absent")')
        assert ran(built, "//:library", "//:plain") == {"Phase1"}
        edited(built, PASS, '"absent"', '"batch_prefill"')
        assert ran(built, "//:library", "//:plain") == NO_KERNEL
    finally:
        built.write(PASS, before)


def test_another_place_runs_it_in_another_phase(built: World) -> None:
    before = (built.root / "BUILD.toml").read_text()
    try:
        edited(built, "BUILD.toml", 'after = "FuseTransposeMatmul"', 'before = "AttachVariableBounds"')
        # No kernel is for batch_verify alone, but their names in the metadata say that they were in it too.
        assert ran(built, "//:library") == {"Lower", "Link"}
        assert entry_functions(built, "library") == {"batch_decode"}
    finally:
        built.write("BUILD.toml", before)


RULE = """
from mlcbuild.rules.passes import CompilerPassInfo
from mlcbuild.rules.rule import Rule
from mlcbuild.workspace.schema import RuleSchema

ONLY_CALLED = Rule(
    schema=RuleSchema(name="only_called", doc="Leaves out what is never called.", provides=("compiler_pass",)),
    implementation=lambda context: (CompilerPassInfo(function="passes.only_called:run", after="FuseTransposeMatmul"),),
)
"""


def test_a_rule_of_the_workspace_may_stand_for_a_pass(built: World) -> None:
    before = (built.root / "BUILD.toml").read_text()
    try:
        built.write("passes/rule.py", RULE)
        built.write("passes/BUILD.toml", "")
        edited(built, "BUILD.toml", 'name = "example"\n', 'name = "example"\nrules = ["//passes:rule.py"]\n')
        edited(built, "BUILD.toml", "[[compiler_pass]]", "[[only_called]]")
        edited(built, "BUILD.toml", 'function = "passes.only_called:run"\nafter = "FuseTransposeMatmul"\n', "")
        assert ran(built, "//:library") == set(), "it is the same pass at the same place"
        edited(built, "passes/rule.py", '"FuseTransposeMatmul"', '"FuseTransposeMatmol"')
        done = built.build("//:library")
        assert done.code == 7
        assert done.err.startswith('passes/rule.py:8: the rule "only_called" failed for //:only-called: ValueError:')
        assert 'did you mean "FuseTransposeMatmul"?' in done.err
    finally:
        built.write("BUILD.toml", before)


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("raise ValueError('no such function')", "ValueError: no such function\n    raised by the pass {}\n"),
        ("return None", "the pass {} returned NoneType, not a module\n"),
        (
            "return tvm.IRModule({v: f for v, f in module.functions_items() if v.name_hint == 'decode'})",
            "the pass {} returned a module that is not well-formed: ",
        ),
    ],
)
def test_a_pass_that_goes_wrong_is_named(built: World, code: str, told: str) -> None:
    before = (built.root / PASS).read_text()
    try:
        edited(built, PASS, "    functions = {", f"    {code}\n    functions = {{")
        done = built.build("//:library")
        assert done.code == 1
        assert done.actions["failed"] == 1
        name = "passes.only_called:run, after FuseTransposeMatmul"
        assert f"//:library Phase1 failed after 0.0 s: {told.format(name)}" in done.err
    finally:
        built.write(PASS, before)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ('after = "FuseTransposMatmul"', 'BUILD.toml:7:9: unknown pass "FuseTransposMatmul" in //:only-called\n'),
        (
            'before = "ApplyDefaultSchedule"',
            'BUILD.toml:7:10: no pass can run at "ApplyDefaultSchedule" in //:only-called\n',
        ),
        ("", "BUILD.toml:5:8: neither after nor before in //:only-called\n"),
        ('after = "FuseTIR"\nbefore = "FuseOps"', "BUILD.toml:5:8: both after and before in //:only-called\n"),
    ],
)
def test_a_place_that_is_none_is_told_before_anything_runs(tmp_path: Path, line: str, told: str) -> None:
    world = written(tmp_path)
    edited(world, "BUILD.toml", 'after = "FuseTransposeMatmul"', line)
    done = world.build()
    assert done.code == 7
    assert done.err.startswith(told)
    assert not done.actions


def test_a_module_that_is_not_there_is_told_before_anything_runs(tmp_path: Path) -> None:
    world = written(tmp_path)
    edited(world, "BUILD.toml", "passes.only_called:run", "passes.only_caled:run")
    done = world.build()
    assert (done.code, done.actions) == (7, {})
    assert done.err.startswith(
        "BUILD.toml:6:12: there is no module passes.only_caled: "
        "the workspace has no passes/only_caled.py in //:only-called\n"
        '  passes/ has: only_called.py        did you mean "only_called.py"?\n'
    )
    world.write("passes/only_caled.py", (world.root / PASS).read_text())
    assert world.build("//:only-called").code == 0, "what was absent is looked at again"
