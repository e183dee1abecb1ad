"""A thousand targets by the command line, with real processes; and what a build with nothing to do leaves alone."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.end_to_end.synthetic import Expectation, Files, Synthetic
from tests.end_to_end.world import World

HEAVY = (
    "tvm", "tvm_ffi", "ray", "boto3", "botocore", "numpy", "torch", "transformers", "rich", "pydantic", "asyncio",
    "mlcbuild.execution.local", "mlcbuild.execution.fork_client", "mlcbuild.compiler.ir",
)  # fmt: skip


def labels_of(synthetic: Synthetic) -> list[str]:
    return [target.label for target in synthetic.targets()]


def check_outputs(world: World, expected: Expectation) -> None:
    for label, files in expected.outputs.items():
        assert files_in(world.output(label.removeprefix("//").replace(":", "/").lstrip("/"))) == files, label


def files_in(folder: Path) -> Files:
    return {
        path.relative_to(folder).as_posix(): (path.read_bytes(), os.access(path, os.X_OK))
        for path in folder.rglob("*")
        if path.is_file()
    }


def build(world: World, synthetic: Synthetic, *options: str) -> tuple[Expectation, dict[str, int], Counter[str]]:
    """Build everything; answers the model's word, the report's counts, and the statuses that the events tell."""
    synthetic.write(world.root)
    expected = synthetic.expect(labels_of(synthetic))
    events = world.folder / "events"
    done = world.build("//...", "--jobs", "4", "--events", str(events), *options)
    assert done.code == (1 if expected.failed else 0), done.err
    told = [json.loads(line) for line in events.read_text().splitlines()]
    statuses = Counter(record["status"] for record in told if record["event"] == "action_finished")
    assert sum(statuses.values()) == done.report["actions"]["total"]
    check_outputs(world, expected)
    return expected, done.actions, statuses


def run(world: World, size: int, edits: int) -> None:
    chance = random.Random(size)
    synthetic = Synthetic.random(chance, size)
    expected, actions, _ = build(world, synthetic)
    made = set(expected.keys.values())
    assert actions["executed_local"] == len(made)
    for _ in range(edits):
        synthetic.edit()
        expected, actions, statuses = build(world, synthetic)
        new = set(expected.keys.values()) - made
        assert actions.get("executed_local", 0) == len(new) == statuses["executed_local"]
        made |= new
    for _ in range(2):
        synthetic.toggle_failure()
    expected, actions, _ = build(world, synthetic, "--keep-going")
    assert actions.get("failed", 0) == len(expected.failed)
    assert actions.get("skipped", 0) == len(expected.skipped)
    made |= {key for label, key in expected.keys.items() if label not in expected.failed}
    assert world.verify() == len(made)
    synthetic.mend()
    build(world, synthetic)


@pytest.mark.parametrize("size", [15, 40])
def test_real_processes_make_what_the_model_says(world: World, size: int) -> None:
    run(world, size, edits=3)


@pytest.mark.slow
def test_a_thousand_real_processes_make_what_the_model_says(world: World) -> None:
    run(world, 1000, edits=3)
    nothing_to_do(world, 1000)


def test_nothing_to_do_starts_no_process_and_imports_nothing_heavy(world: World) -> None:
    synthetic = Synthetic.random(random.Random(7), 30)
    synthetic.mend()
    build(world, synthetic)
    nothing_to_do(world, 30)


def nothing_to_do(world: World, least: int) -> None:
    """Build what was built before, in a process that tells what it imported and which processes it started."""
    world.build("//...", "--keep-going")
    program = (
        "import json, sys\n"
        "started = []\n"
        "sys.addaudithook(lambda event, arguments: started.append(event) if event in\n"
        "    ('subprocess.Popen', 'os.fork', 'os.forkpty', 'os.exec', 'os.posix_spawn', 'os.system') else None)\n"
        "from mlcbuild.cli.main import main\n"
        "code = main(['build', '//...', '--keep-going', '--build-report', sys.argv[1]])\n"
        "print(json.dumps([code, started, [name for name in sys.argv[2:] if name in sys.modules]]))\n"
    )
    report = world.folder / "report.json"
    done = subprocess.run(
        [sys.executable, "-c", program, str(report), *HEAVY],
        cwd=world.root,
        env=world.environment,
        capture_output=True,
        text=True,
        check=True,
    )
    code, started, imported = json.loads(done.stdout.splitlines()[-1])
    actions = json.loads(report.read_text())["actions"]
    assert code == 0
    assert actions["up_to_date"] == actions["total"] >= least
    assert started == []
    assert imported == []
