"""Loads a workspace again after an edit: the targets of packages whose file is the same are taken over.

That is what a load would say, as long as these packages were checked against what still holds. They name targets of
others by labels, and of an edited package they count on what the checks ask for: that a target of that name exists, of
which rule it is, and who may see it. Where an edit changes that, everything is loaded.
"""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from mlcbuild.workspace.label import Label
from mlcbuild.workspace.observed import NOTHING
from mlcbuild.workspace.target import Target

if TYPE_CHECKING:
    from mlcbuild.workspace.loader import LoadedWorkspace

_MOST_LOADS = 8
_COMPARED_FIELDS = tuple(field.name for field in fields(Target) if field.name not in ("origin", "elsewhere"))


@dataclass(frozen=True, kw_only=True)
class EarlierLoad:
    """What an equal request loaded before. `changed` are the paths that it read and that may be different now. What it
    only looked for is as it was then: the caller has made sure. `digest` is that of `loaded`.
    """

    loaded: LoadedWorkspace
    digest: str
    changed: frozenset[str]

    def targets_by_package(self, build_file: Callable[[str], str]) -> dict[str, dict[str, Target]] | None:
        """The targets of packages with the same file, by their names. None where more has changed than the files of
        packages and the folders that they lie in.
        """
        packages = self.loaded.named_packages
        files = {build_file(package): package for package in packages if package}
        kinds = self.loaded.observed.looked_for
        if any(path not in files and not stat.S_ISDIR(kinds.get(path, NOTHING)) for path in self.changed):
            return None
        edited = {files[path] for path in self.changed if path in files}
        taken_over: dict[str, dict[str, Target]] = {name: {} for name in packages if name not in edited}
        for label, target in self.loaded.targets.items():
            if label.package in taken_over:
                taken_over[label.package][label.name] = target
        return taken_over

    def still_allows(self, package: str, targets: Mapping[str, Target], taken_over: Iterable[str]) -> bool:
        """Whether packages that were taken over may go on to name what an edited `package` has."""
        if not any(package in self.loaded.named_packages[user] for user in taken_over):
            return True
        before = {label.name: target for label, target in self.loaded.targets.items() if label.package == package}
        kinds = self.loaded.observed.looked_for
        return all(
            name in targets and _as_others_see(target) == _as_others_see(targets[name])
            for name, target in before.items()
        ) and not any(kinds.get(Label(package, name).path, NOTHING) for name in targets if name not in before)

    def edited_since(self, targets: Mapping[Label, Target]) -> dict[str, frozenset[Label]]:
        """`LoadedWorkspace.edited_since` of these targets, of which those that were taken over are the same objects."""
        before = self.loaded.targets
        edited = frozenset(label for label, target in targets.items() if not _is_same(before.get(label), target))
        recent = list(self.loaded.edited_since.items())[: _MOST_LOADS - 1]
        return {self.digest: edited, **{digest: labels | edited for digest, labels in recent}}


def _as_others_see(target: Target) -> tuple[object, ...]:
    return target.schema.name, target.visibility


def _is_same(before: Target | None, now: Target) -> bool:
    """Whether a target has not changed, wherever it is written. Tables in another order are not the same, nor are 1 and
    true: rules may tell them apart."""
    return before is now or (before is not None and _compared(before) == _compared(now))


def _compared(target: Target) -> str:
    return repr([getattr(target, name) for name in _COMPARED_FIELDS])
