"""What of an analysis the engine is told: the requested targets, and the toolchains that its actions need."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from mlcbuild.engine.action import Action, Artifact
from mlcbuild.engine.scheduler_events import RequestedTarget
from mlcbuild.errors import BuildError
from mlcbuild.rules.analysis import AnalysedTarget, Analysis
from mlcbuild.rules.fetched import FetchInfo
from mlcbuild.rules.providers import FilesInfo, TestInfo
from mlcbuild.toolchains.table import Toolchains, find


def targets_of(analysed: Iterable[AnalysedTarget], *, output: str, runs_tests: bool = False) -> list[RequestedTarget]:
    """The targets as the driver takes them; each one's outputs go into its own directory, `OUTPUT/PACKAGE/TARGET`.

    Of a test, what it runs is made, or with `runs_tests` its result."""
    targets = []
    for target in analysed:
        files, test = target.provided(FilesInfo), target.provided(TestInfo)
        place = "/".join(part for part in (output, target.label.package, target.label.name) if part)
        outputs = files.files if files else ()
        builds: tuple[Artifact, ...] = ()
        if test is not None:
            outputs, builds = (test.files.files, ()) if runs_tests else ((), test.builds)
        targets.append(
            RequestedTarget(label=str(target.label), directory=place, outputs=outputs, builds=builds, axes=target.axes)
        )
    return targets


def fetched_targets(analysis: Analysis) -> list[AnalysedTarget]:
    """The targets of the closure whose files come from outside the workspace."""
    return [target for target in analysis.targets.values() if target.provided(FetchInfo)]


def check_toolchains(toolchains: Toolchains, actions: Iterable[Action]) -> None:
    """Raise LocalEnvironmentError if a toolchain of the actions is not installed, and BuildError, which names an
    action, for a name that no toolchain has."""
    declared = {name: action.identifier for action in actions for name in toolchains_of([action])}
    for name, identifier in declared.items():
        try:
            find(name)
        except BuildError as error:
            raise BuildError(f"{error.message} of {identifier}", advice=error.advice) from None
    toolchains.check(declared)


def toolchains_of(actions: Iterable[Action]) -> Iterator[str]:
    """The toolchains of the actions, and of those that they may discover as far as they declare it."""
    for action in actions:
        yield from action.toolchains
        yield from getattr(action.discoverer, "toolchains", ())
