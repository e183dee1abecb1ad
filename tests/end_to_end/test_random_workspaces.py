"""Random workspaces and random edits: what runs, what is up to date and which bytes come out, against a plain model.

Everything is the product's own, from BUILD.toml to placed outputs, but for the executor, which runs the workspaces'
program as a Python function; `test_thousand_targets` runs it for real.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mlcbuild.cache.digest import Digest, DigestFunction
from mlcbuild.cache.disk import DiskStore
from mlcbuild.cache.file_digests import FileDigests
from mlcbuild.cache.store import BlobMissingError, LocalBlobStore
from mlcbuild.cli.build.targets import targets_of
from mlcbuild.cli.workspace.opening import open_workspace
from mlcbuild.engine.action import Action, ToolCall
from mlcbuild.engine.build_events import ActionFinished, ActionStatus, BuildEvent
from mlcbuild.engine.build_result import BuildResult
from mlcbuild.engine.driver import Driver
from mlcbuild.engine.executor import ExecutionOutcome, ExecutionRequest, FileEntry, OutcomeKind
from mlcbuild.engine.implementation import Implementations
from mlcbuild.engine.last_build import LastBuild
from mlcbuild.engine.outputs import OutputPlacer
from mlcbuild.rules.analysis import analyse
from mlcbuild.toolchains.table import Toolchains
from tests.end_to_end.synthetic import FAIL, FAILURE_CODE, Expectation, Key, Synthetic, run_program
from tests.end_to_end.world import verify_store

Statuses = dict[str, ActionStatus]


class ProgramExecutor:
    """Runs the synthetic program in this thread, over a real store."""

    name = "local"
    slots = 4
    trip_seconds = 0.0

    def __init__(self, store: LocalBlobStore) -> None:
        self._store = store
        self._report: Callable[[ExecutionOutcome], None] = lambda _: None

    def start(self, report: Callable[[ExecutionOutcome], None]) -> None:
        self._report = report

    def unmet_requirement(self, action: Action) -> str:
        return ""

    def submit(self, request: ExecutionRequest) -> None:
        self._report(self._run(request))

    def cancel(self, identifier: str) -> None:
        pass

    def close(self) -> None:
        pass

    def _run(self, request: ExecutionRequest) -> ExecutionOutcome:
        assert isinstance(request.command, ToolCall)
        inputs: dict[str, tuple[bytes, bool]] = {}
        missing: list[Digest] = []
        for entry in request.inputs:
            try:
                inputs[entry.path] = (self._store.read(entry.digest), entry.is_executable)
            except BlobMissingError:
                missing.append(entry.digest)
        if missing:
            return ExecutionOutcome(
                identifier=request.identifier, kind=OutcomeKind.INPUTS_MISSING, missing=tuple(missing)
            )
        tool, *arguments = request.command.arguments
        content, executable = inputs.pop(tool)
        assert executable
        made = run_program(content, arguments, dict(request.environment)["VARIABLE"], inputs)
        if made is None:
            return ExecutionOutcome(
                identifier=request.identifier, kind=OutcomeKind.FAILED, message="failed", exit_code=FAILURE_CODE
            )
        outputs = [
            FileEntry(path=path, digest=self._store.put_bytes(data, durable=False), is_executable=bit)
            for path, (data, bit) in made.items()
        ]
        return ExecutionOutcome(
            identifier=request.identifier, kind=OutcomeKind.SUCCEEDED, outputs=tuple(sorted(outputs))
        )


class Builds:
    """Builds one after another in one workspace, each as a process of its own would, and the model beside them."""

    def __init__(self, folder: Path, world: Synthetic) -> None:
        self.world = world
        self.root = folder / "workspace"
        self.cache = folder / "cache"
        self.made: set[Key] = set()  # whatever succeeded once, here or in another workspace on the same cache
        self.last: dict[str, Key] = {}  # what this workspace's state knows of each label

    def build(self, wanted: Sequence[str], *, keep_going: bool = True) -> tuple[BuildResult, Statuses]:
        self.world.write(self.root)
        workspace = open_workspace(self.root)
        loaded = workspace.load(wanted, "")
        analysis = analyse(loaded, workspace.rules)
        assert {str(target.label) for target in analysis.requested} == set(wanted)
        store = DiskStore(self.cache, DigestFunction.BLAKE3)
        state = workspace.state_directory
        events: list[BuildEvent] = []
        toolchains = Toolchains(state / "toolchains.json")
        driver = Driver(
            workspace=self.root,
            store=store,
            toolchains=toolchains,
            implementations=Implementations(state / "implementations.json", distributions=toolchains.distributions),
            executors=[ProgramExecutor(store)],
            digests=FileDigests(self.root, DigestFunction.BLAKE3, state / "file-digests"),
            placer=OutputPlacer(self.root, store, state / "outputs"),
            last_build=LastBuild(state / "last-build.json"),
            listeners=[events.append],
            keep_going=keep_going,
        )
        result = driver.build(analysis.actions, targets_of(analysis.requested, output="out/default"))
        statuses = {event.owner: event.status for event in events if isinstance(event, ActionFinished)}
        return result, statuses

    def check(self, wanted: Sequence[str]) -> Expectation:
        """Build, with --keep-going, and compare everything with the model."""
        expected = self.world.expect(wanted)
        result, statuses = self.build(wanted)
        assert result.success == (not expected.failed)
        assert set(statuses) == {*expected.keys, *expected.skipped}
        by_key: dict[Key, list[str]] = {}
        for label, key in expected.keys.items():
            by_key.setdefault(key, []).append(label)
        for key, labels in by_key.items():
            seen = Counter(statuses[label] for label in labels)
            if labels[0] in expected.failed:
                assert seen == {ActionStatus.FAILED: len(labels)}
            elif key not in self.made:
                assert seen[ActionStatus.EXECUTED_LOCAL] == 1, f"{labels}: one execution of equal actions"
                assert seen[ActionStatus.DISK_HIT] + seen[ActionStatus.UP_TO_DATE] == len(labels) - 1
            else:
                for label in labels:
                    known = self.last.get(label) == key
                    assert statuses[label] is (ActionStatus.UP_TO_DATE if known else ActionStatus.DISK_HIT), label
        assert {label for label, status in statuses.items() if status is ActionStatus.SKIPPED} == expected.skipped
        succeeded = {label: key for label, key in expected.keys.items() if label not in expected.failed}
        self.made |= set(succeeded.values())
        self.last |= succeeded
        self.check_outputs(wanted, expected)
        return expected

    def check_outputs(self, wanted: Sequence[str], expected: Expectation) -> None:
        for label in wanted:
            folder = self.root / "out/default" / label.removeprefix("//").replace(":", "/").lstrip("/")
            if label in expected.outputs:
                found = {
                    path.relative_to(folder).as_posix(): (path.read_bytes(), bool(path.stat().st_mode & 0o100))
                    for path in folder.rglob("*")
                    if path.is_file()
                }
                assert found == expected.outputs[label], label


def some_labels(world: Synthetic, chance: random.Random, most: int) -> list[str]:
    labels = [target.label for target in world.targets()]
    return chance.sample(labels, k=min(len(labels), chance.randrange(1, most + 1)))


def folder_for(factory: pytest.TempPathFactory, seed: int) -> Path:
    return factory.mktemp(f"seed-{seed}-")


examples = settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
seeds = st.integers(0, 2**32)


@examples
@given(seed=seeds, size=st.integers(1, 60))
def test_what_runs_after_edits_is_what_the_model_says(
    tmp_path_factory: pytest.TempPathFactory, seed: int, size: int
) -> None:
    chance = random.Random(seed)
    world = Synthetic.random(chance, size)
    builds = Builds(folder_for(tmp_path_factory, seed), world)
    wanted = some_labels(world, chance, 12)
    builds.check(wanted)
    for _ in range(4):
        for _ in range(chance.randrange(1, 4)):
            world.edit()
        if chance.random() < 0.3:
            wanted = some_labels(world, chance, 12)
        builds.check(wanted)
    assert verify_store(builds.cache) == len(builds.made)


@examples
@given(seed=seeds, size=st.integers(1, 40))
def test_with_keep_going_all_is_built_that_can_be(
    tmp_path_factory: pytest.TempPathFactory, seed: int, size: int
) -> None:
    chance = random.Random(seed)
    world = Synthetic.random(chance, size)
    builds = Builds(folder_for(tmp_path_factory, seed), world)
    wanted = some_labels(world, chance, 12)
    for _ in range(4):
        for _ in range(chance.randrange(1, 3)):
            world.toggle_failure()
        if chance.random() < 0.5:
            world.edit()
        builds.check(wanted)
    assert verify_store(builds.cache) == len(builds.made), "failures are not kept"


@examples
@given(seed=seeds, size=st.integers(2, 40))
def test_without_keep_going_what_was_made_is_right_and_the_next_build_goes_on_from_there(
    tmp_path_factory: pytest.TempPathFactory, seed: int, size: int
) -> None:
    chance = random.Random(seed)
    world = Synthetic.random(chance, size)
    builds = Builds(folder_for(tmp_path_factory, seed), world)
    wanted = some_labels(world, chance, 12)
    world.toggle_failure()
    expected = world.expect(wanted)
    result, statuses = builds.build(wanted, keep_going=False)
    assert result.success == (not expected.failed)
    executed = {label for label, status in statuses.items() if status is ActionStatus.EXECUTED_LOCAL}
    assert executed <= set(expected.outputs)
    builds.made |= {expected.keys[label] for label in executed}
    shared = {label for label, status in statuses.items() if status is ActionStatus.DISK_HIT}
    builds.last |= {label: expected.keys[label] for label in executed | shared}
    assert verify_store(builds.cache) == len(builds.made)
    world.commands = [replace(command, word="z") if command.word == FAIL else command for command in world.commands]
    assert not builds.check(wanted).failed


@examples
@given(seed=seeds, size=st.integers(1, 40))
def test_files_that_are_touched_and_hold_the_same_are_up_to_date(
    tmp_path_factory: pytest.TempPathFactory, seed: int, size: int
) -> None:
    chance = random.Random(seed)
    world = Synthetic.random(chance, size)
    builds = Builds(folder_for(tmp_path_factory, seed), world)
    wanted = some_labels(world, chance, 12)
    builds.check(wanted)
    for path in [*world.sources, "tools/t0.sh", "BUILD.toml"]:
        file = builds.root / path
        match chance.randrange(4):
            case 0:
                file.write_bytes(file.read_bytes())
            case 1:
                os.utime(file, (0, 0))
            case 2:
                os.utime(file, (4_000_000_000, 4_000_000_000))
            case _:
                copy = file.with_name("copy")
                copy.write_bytes(file.read_bytes())
                copy.chmod(file.stat().st_mode & 0o777)
                copy.replace(file)
    _, statuses = builds.build(wanted)
    assert set(statuses.values()) <= {ActionStatus.UP_TO_DATE}


@examples
@given(seed=seeds, size=st.integers(1, 40))
def test_a_store_that_loses_anything_between_builds_loses_time_alone(
    tmp_path_factory: pytest.TempPathFactory, seed: int, size: int
) -> None:
    chance = random.Random(seed)
    world = Synthetic.random(chance, size)
    builds = Builds(folder_for(tmp_path_factory, seed), world)
    wanted = some_labels(world, chance, 12)
    for _ in range(3):
        expected = world.expect(wanted)
        result, statuses = builds.build(wanted)
        assert result.success
        assert set(statuses) == set(expected.keys)
        builds.check_outputs(wanted, expected)
        verify_store(builds.cache, complete=False)
        if chance.random() < 0.5:
            world.edit()
        _harm(builds, chance)


def _harm(builds: Builds, chance: random.Random) -> None:
    """Delete, cut and flip blobs and results, placed outputs and the workspace's state."""
    base = builds.cache / "v1/blake3"
    for path in sorted([*base.glob("cas/*/*"), *base.glob("ac/*/*")]):
        if chance.random() < 0.2:
            _spoil(path, chance)
    for path in sorted(file for file in (builds.root / "out").rglob("*") if file.is_file()):
        if chance.random() < 0.2:
            _spoil(path, chance)
    for path in sorted((builds.root / ".mlcbuild").iterdir()):
        if path.is_file() and chance.random() < 0.2:
            _spoil(path, chance)


def _spoil(path: Path, chance: random.Random) -> None:
    data = bytearray(path.read_bytes())
    kind = chance.randrange(3) if data else 0
    if kind == 0:
        path.unlink()
        return
    mode = path.stat().st_mode & 0o777
    path.chmod(0o600)
    if kind == 1:
        path.write_bytes(data[: len(data) // 2])
    else:
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        path.write_bytes(data)
    path.chmod(mode)


@examples
@given(seed=seeds, size=st.integers(1, 40))
def test_a_copy_of_the_workspace_elsewhere_hits_for_everything(
    tmp_path_factory: pytest.TempPathFactory, seed: int, size: int
) -> None:
    chance = random.Random(seed)
    world = Synthetic.random(chance, size)
    folder = folder_for(tmp_path_factory, seed)
    first = Builds(folder, world)
    wanted = some_labels(world, chance, 12)
    first.check(wanted)
    second = Builds(folder, world)
    second.root = folder / "another place"
    second.made = first.made
    second.check(wanted)
    assert set(second.last) == set(first.last)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.exhaustive) for seed in range(1, 6))])
def test_a_thousand_targets_against_the_model(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    world = Synthetic.random(chance, 1000)
    builds = Builds(tmp_path, world)
    wanted = [target.label for target in world.targets()]
    builds.check(wanted)
    for _ in range(4):
        world.edit()
        builds.check(wanted)
    for _ in range(3):
        world.toggle_failure()
    builds.check(wanted)
    assert verify_store(builds.cache) == len(builds.made)
