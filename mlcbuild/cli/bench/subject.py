"""What `bench` measures: the library, and the weights of a package, that a path or a label leads to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from mlcbuild.cli.arguments.options import GlobalOptions
from mlcbuild.cli.build.request import BuildOutcome, BuildRequest
from mlcbuild.cli.build.session import run_build
from mlcbuild.cli.exit_codes import ExitCode
from mlcbuild.cli.inspection.survey import surveying
from mlcbuild.compiler.kernel_description import KernelDescription
from mlcbuild.engine.survey import all_wanted
from mlcbuild.errors import UsageError
from mlcbuild.rules.analysis import Analysis
from mlcbuild.runtime.package import ModelPackage

_LIBRARY_RULE = "model_library"
_PACKAGE_RULE = "model_package"
_LIBRARY_ENDING = ".so"


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A library, called `title`; with the weights of the package in `package`, or random ones. `descriptions` say what
    its kernels compute, by their names, where that is known."""

    title: str
    library: Path
    package: Path | None
    descriptions: Mapping[str, KernelDescription] = field(default_factory=dict)


def is_label(given: str) -> bool:
    """Whether a label or a pattern is meant, and not a path."""
    return given.startswith(("//", ":", "@"))


def subject_of_path(path: Path) -> Subject:
    """Raises UsageError for what is no package and no library."""
    if path.is_dir():
        return Subject(title=str(path), library=ModelPackage.open(path).library, package=path)
    if not path.is_file():
        advice = ["name a package's folder, a library, or a target"]
        if ":" in str(path):
            advice.append("a target's label begins with // or with a colon")
        raise UsageError(f"{path} is not there", advice=tuple(advice))
    if not path.name.endswith(_LIBRARY_ENDING):
        raise UsageError(
            f"{path} is no library", advice=(f"the file of a library ends in {_LIBRARY_ENDING}: lib.so of a package",)
        )
    return Subject(title=str(path), library=path, package=None)


def subjects_of_labels(request: BuildRequest, options: GlobalOptions) -> list[Subject] | ExitCode:
    """Builds what is requested; a failed build is told, and gives its exit code. Raises UsageError for a target without
    a library."""

    def check(analysis: Analysis) -> None:
        if not analysis.requested:
            raise UsageError("there is nothing to measure", advice=("name a target, a package's folder, or a library",))
        for target in analysis.requested:
            if target.rule not in (_LIBRARY_RULE, _PACKAGE_RULE):
                advice = ("name targets that are a model_package or a model_library",)
                raise UsageError(f"{target.label} is a {target.rule}", advice=advice)

    outcome = run_build(replace(request, check=check, quiet_if_current=True), options)
    if outcome.exit_code is not ExitCode.OK:
        return outcome.exit_code
    descriptions = _descriptions(outcome, request, options)
    subjects = []
    for target in outcome.analysis.requested:
        folder = outcome.workspace.root / outcome.directories[str(target.label)]
        if target.rule == _PACKAGE_RULE:
            found = subject_of_path(folder)
        else:
            built = (outcome.workspace.root / path for path in outcome.paths)
            (library,) = (path for path in built if path.parent == folder)
            found = subject_of_path(library)
        subjects.append(replace(found, title=str(target.label), descriptions=descriptions))
    return subjects


def _descriptions(outcome: BuildOutcome, request: BuildRequest, options: GlobalOptions) -> dict[str, KernelDescription]:
    """What the kernels of a built target compute, of the manifests in the cache."""
    wanted = all_wanted(outcome.analysis.actions)
    with surveying(
        outcome.workspace, outcome.analysis, wanted, disk_cache=request.disk_cache, remote=None, say=options.note
    ) as parts:
        actions = [each.action for each in parts.survey.actions.values() if each.action.mnemonic == "CompileKernel"]
    found = {}
    for action in actions:
        if action.description is not None:
            details = dict(action.description.details)
            found[str(details["kernel"])] = KernelDescription.read(details)
    return found
