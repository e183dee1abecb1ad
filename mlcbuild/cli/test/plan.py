"""Which tests a command runs: chosen among what its patterns match, with the actions of each run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from mlcbuild.cli.arguments.options import STATE_DIRECTORY
from mlcbuild.cli.build.targets import targets_of
from mlcbuild.cli.test.request import NoTestsError, TestRequest
from mlcbuild.engine.action import Action, CachePolicy
from mlcbuild.engine.scheduler_events import RequestedTarget
from mlcbuild.rules.analysis import AnalysedTarget, Analysis
from mlcbuild.rules.providers import TestInfo
from mlcbuild.workspace.label import Label
from mlcbuild.workspace.loader import LoadedWorkspace

LOGS = "testlogs"


@dataclass(frozen=True, kw_only=True)
class PlannedRun:
    """One run of a test: the identifier of its action, and the folder below the workspace that gets its files."""

    action: str
    folder: str


@dataclass(frozen=True, kw_only=True)
class PlannedTest:
    """A test, with its runs. `is_named`: the command line names it, and no wildcard alone."""

    label: str
    rule: str
    size: str
    tags: tuple[str, ...]
    is_named: bool
    runs: tuple[PlannedRun, ...]


@dataclass(frozen=True, kw_only=True)
class TestPlan:
    """All that a build needs in order to run tests. Targets that are named and no tests are built."""

    __test__ = False

    tests: tuple[PlannedTest, ...]
    actions: tuple[Action, ...]
    targets: tuple[RequestedTarget, ...]


def chosen_tests(analysis: Analysis, loaded: LoadedWorkspace, request: TestRequest) -> Analysis:
    """The analysis with the tests that are wanted, and other targets that are named. Raises NoTestsError."""
    tests = [target.label for target in analysis.requested if target.provided(TestInfo)]
    left = {label for label in tests if _is_wanted(analysis.targets[label], loaded, request)}
    skipped = {label: why for label, why in analysis.skipped.items() if _provides_test(label, loaded)}
    if not left and not skipped:
        if tests:
            raise NoTestsError(f"no test is left of {len(tests)}: filters of tags or sizes leave all out")
        raise NoTestsError(
            "no test target matches, although tests are to run",
            advice=(
                """mlcbuild query 'kind(".*_test", //...)' lists those that there are""",
                "one that is tagged manual runs only where it is named",
            ),
        )
    named = set() if request.builds_tests_only else loaded.named.difference(tests)
    return replace(analysis.narrowed(left | named), skipped=skipped)


def plan_tests(analysis: Analysis, loaded: LoadedWorkspace, request: TestRequest, *, output: str) -> TestPlan:
    """The runs of the tests of an analysis, which `chosen_tests` has made. `output` is the folder for what is built."""
    actions = {action.identifier: action for action in analysis.actions}
    tests, targets = [], []
    for target in analysis.requested:
        info = target.provided(TestInfo)
        if info is None:
            targets += targets_of((target,), output=output)
            continue
        folder = _folder(target.label, loaded.configuration.name)
        action = _with_timeout(actions.pop(info.action), request)
        runs = list(_runs(action, folder, request.runs))
        actions |= {run.identifier: run for run, _ in runs}
        outputs = [
            (f"{place.removeprefix(folder).lstrip('/')}/{name}".lstrip("/"), run.output(f"out/{name}"))
            for run, place in runs
            for name, _ in info.files.files
        ]
        targets.append(
            RequestedTarget(label=str(target.label), directory=folder, outputs=tuple(outputs), axes=target.axes)
        )
        tests.append(
            PlannedTest(
                label=str(target.label),
                rule=target.rule,
                size=info.size,
                tags=loaded.targets[target.label].tags,
                is_named=target.label in loaded.named and not request.skips_incompatible,
                runs=tuple(PlannedRun(action=run.identifier, folder=place) for run, place in runs),
            )
        )
    return TestPlan(tests=tuple(tests), actions=tuple(actions.values()), targets=tuple(targets))


def _is_wanted(target: AnalysedTarget, loaded: LoadedWorkspace, request: TestRequest) -> bool:
    info = target.provided(TestInfo)
    assert info is not None
    return request.tags.takes(loaded.targets[target.label].tags) and request.sizes.takes((info.size,))


def _provides_test(label: Label, loaded: LoadedWorkspace) -> bool:
    return TestInfo.name in loaded.targets[label].schema.provides


def _folder(label: Label, configuration: str) -> str:
    return "/".join(part for part in (STATE_DIRECTORY, LOGS, configuration, label.package, label.name) if part)


def _with_timeout(action: Action, request: TestRequest) -> Action:
    if not request.timeout_seconds:
        return action
    return replace(action, requirements=replace(action.requirements, timeout_seconds=request.timeout_seconds))


def _runs(action: Action, folder: str, count: int) -> Iterable[tuple[Action, str]]:
    """The action itself, or so many that run each time: who asks for several wants to see whether they agree."""
    if count == 1:
        yield action, folder
        return
    for number in range(1, count + 1):
        identifier = f"{action.identifier} (run {number} of {count})"
        yield (
            replace(action, identifier=identifier, cache=CachePolicy.NONE),
            f"{folder}/run_{number}_of_{count}",
        )
