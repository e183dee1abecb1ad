"""Checks that need several files: labels without a target or with a wrong one, and dependency cycles."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from operator import attrgetter
from pathlib import Path

from mlcbuild.errors import Location, WorkspaceError
from mlcbuild.suggestions import did_you_mean, known_values
from mlcbuild.workspace.error_collector import ErrorCollector
from mlcbuild.workspace.graph import cycles
from mlcbuild.workspace.label import Label, path_in_repository, shown_package
from mlcbuild.workspace.observed import NOTHING
from mlcbuild.workspace.package_reader import Package
from mlcbuild.workspace.packages import BUILD_FILE, PackageTree
from mlcbuild.workspace.pattern import Pattern, parse_pattern
from mlcbuild.workspace.schema import Attribute, RuleSchema
from mlcbuild.workspace.target import Target
from mlcbuild.workspace.toml import Origin
from mlcbuild.workspace.values import Reference

_MOST_STEPS = 10
_PUBLIC = "//visibility:public"
_PRIVATE = "//visibility:private"


class Checker:
    """Checks loaded packages against each other and collects errors."""

    def __init__(
        self,
        root: Path,
        tree: PackageTree,
        packages: Mapping[str, Package],
        schemas: Mapping[str, RuleSchema],
        errors: ErrorCollector,
    ) -> None:
        self._root = root
        self._tree = tree
        self._packages = packages
        self._schemas = schemas
        self._errors = errors
        self._visibility: dict[Label, tuple[Pattern, ...] | None] = {}

    def check(self, references: Sequence[Reference], paths: Sequence[tuple[str, Attribute, Origin]]) -> None:
        """Check everything. `references` and `paths` are those that belong to no package."""
        everything = [*references, *(found for package in self._packages.values() for found in package.references)]
        for reference in everything:
            self._check_reference(reference)
        for path, attribute, origin in [
            *paths,
            *(found for package in self._packages.values() for found in package.paths),
        ]:
            if attribute.name != "output":
                self._check_path(path, attribute, origin)
        for package in self._packages.values():
            self._check_names(package)
        self._check_cycles()

    def missing(self, label: Label, what: str, *, or_file: bool = False) -> tuple[str, str]:
        """The message and the advice for a label that names no target. `what` completes the sentence."""
        package = self._packages.get(label.package)
        if package is None:
            folder = self._tree.build_file(label.package).removesuffix("/" + BUILD_FILE)
            if self._tree.is_foreign(label.package):
                return f"{label}{what} is not in this workspace", f"{folder} is ignored, hidden or another workspace"
            message, advice = self.no_package(label.package, [name for name in self._packages if name])
            return f"{message}: {label}{what}", advice
        thing = "target or file" if or_file else "target"
        known = (*package.known_names(), *(self._files_beside(label) if or_file else ()))
        return (
            f"no {thing} {label}{what}",
            known_values(label.name, known, intro=f"{shown_package(label.package)} has")
            or f"{shown_package(label.package)} has no targets",
        )

    def no_package(self, package: str, known: Sequence[str]) -> tuple[str, str]:
        """The message and the advice for a package that does not exist; `known` are packages of the workspace."""
        if path_in_repository(package) is None:
            guess = did_you_mean(package, known)
            return f"no package //{package}", f"there is no {self._tree.build_file(package)}        {guess}".rstrip()
        name = package.partition("//")[0]
        repositories = [f"@{repository}" for repository in self._tree.repositories]
        if name in repositories:
            return f"no package {package}", f"{name}// has the targets of the repository, and no other package"
        return f"no repository {name}", known_values(name, repositories, intro="built in")

    def _files_beside(self, label: Label) -> tuple[str, ...]:
        """What lies in the folder of a file that is not there, named as it is."""
        if path_in_repository(label.package) is not None:
            return ()
        inside, slash, _ = label.name.rpartition("/")
        folder = self._root / label.package / inside
        try:
            names = sorted(os.listdir(folder))  # noqa: PTH208
        except OSError:
            return ()
        return tuple(inside + slash + name for name in names if not name.startswith(".") and name != BUILD_FILE)

    def _exists(self, path: str) -> bool:
        return self._tree.observer.kind_of(path) != NOTHING

    def _kind_of(self, path: str) -> str:
        return f"the {'folder' if (self._root / path).is_dir() else 'file'} {path}"

    def _targets(self) -> list[Target]:
        return [target for package in self._packages.values() for target in package.targets.values()]

    def _check_reference(self, reference: Reference) -> None:
        label, attribute = reference.label, reference.attribute
        package = self._packages.get(label.package)
        target = package.targets.get(label.name) if package else None
        if target is not None and reference.is_bare and attribute.allow_files and self._exists(label.path):
            self._errors.add(
                f'"{label.name}" is both the target {label} and {self._kind_of(label.path)} as {reference.role}',
                reference.location,
                f'to name the target, write ":{label.name}"',
                "to name what lies there, give the target another name",
            )
        elif target is not None:
            self._check_kind(reference, target)
            self._check_visible(reference, target)
        elif not (package and package.may_define(label.name)) and not (
            attribute.allow_files and path_in_repository(label.package) is None and self._exists(label.path)
        ):
            message, advice = self.missing(label, f", {reference.role},", or_file=attribute.allow_files)
            self._errors.add(message.removesuffix(","), reference.location, advice, self._built_in(reference))

    def _built_in(self, reference: Reference) -> str:
        """The built-in target that a label without a target may have meant: one of its name that fits the attribute."""
        name, wanted = reference.label.name, frozenset(reference.attribute.provides)
        if path_in_repository(reference.label.package) is not None:
            return ""
        for package in (f"@{repository}//" for repository in self._tree.repositories):
            for rule, tables in self._tree.file(package).content.items():
                fits = rule in self._schemas and not wanted.isdisjoint(self._schemas[rule].provides)
                if fits and any(table["name"] == name for table in tables):
                    return f'did you mean "{Label(package, name)}", which is built in?'
        return ""

    def _check_kind(self, reference: Reference, target: Target) -> None:
        label, attribute = reference.label, reference.attribute
        schema = target.schema
        if not attribute.provides and not attribute.rules:
            return
        if schema.name in attribute.rules or not frozenset(schema.provides).isdisjoint(attribute.provides):
            return
        fitting = [
            found.name
            for found in self._schemas.values()
            if found.name in attribute.rules or not frozenset(found.provides).isdisjoint(attribute.provides)
        ]
        self._errors.add(
            f"{label} is a {schema.name}, which cannot be {reference.role}",
            reference.location,
            f"allowed rules: {', '.join(fitting)}" if fitting else "no known rule is allowed",
        )

    def _check_visible(self, reference: Reference, target: Target) -> None:
        if target.visibility is None or reference.package == target.label.package:
            return
        patterns = self._patterns(target)
        if patterns is None or any(pattern.covers_package(reference.package) for pattern in patterns):
            return
        self._errors.add(
            f"{target.label} is not visible: it cannot be {reference.role}",
            reference.location,
            f"its visibility is set at {target.origin.at('visibility').location}",
        )

    def _patterns(self, target: Target) -> tuple[Pattern, ...] | None:
        """The patterns of a target's visibility. None: it is visible to all."""
        if target.label not in self._visibility:
            self._visibility[target.label] = self._read_visibility(target)
        return self._visibility[target.label]

    def _read_visibility(self, target: Target) -> tuple[Pattern, ...] | None:
        patterns = []
        for index, text in enumerate(target.visibility or ()):
            if text == _PUBLIC:
                return None
            if text != _PRIVATE:
                try:
                    patterns.append(parse_pattern(text, package=target.label.package))
                except WorkspaceError as error:
                    self._errors.add(error.message, target.origin.at("visibility", index), *error.advice)
        return tuple(patterns)

    def _check_path(self, path: str, attribute: Attribute, origin: Origin) -> None:
        if self._exists(path):
            return
        folder, _, name = path.rpartition("/")
        try:
            present = sorted(entry.name for entry in (self._root / folder).iterdir())
        except OSError:
            present = []
        self._errors.add(f'no file "{path}" for "{attribute.name}"', origin, did_you_mean(name, present))

    def _check_names(self, package: Package) -> None:
        """A name with slashes must not cross into another package or below another target: outputs would mix."""
        for name, target in package.targets.items():
            if "/" not in name:
                continue
            segments = name.split("/")
            for end in range(1, len(segments)):
                front = "/".join(segments[:end])
                inner = f"{package.name}/{front}" if package.name else front
                if self._tree.is_package(inner):
                    self._errors.add(
                        f"the name of {target.label} crosses into the package //{inner}",
                        target.origin.at("name"),
                        f'define it in {self._tree.build_file(inner)} as "{"/".join(segments[end:])}"',
                    )
                elif front in package.targets:
                    self._errors.add(
                        f"the outputs of {target.label} would be inside those of {package.targets[front].label}",
                        target.origin.at("name"),
                    )

    def _check_cycles(self) -> None:
        targets = {target.label: target for target in sorted(self._targets(), key=attrgetter("label"))}
        graph = {label: target.referenced_labels for label, target in targets.items()}
        for cycle in cycles(graph):
            steps = [
                (label, needed, _place_of(targets[label], needed))
                for label, needed in zip(cycle, (*cycle[1:], cycle[0]), strict=True)
            ]
            advice = [f"{label} needs {needed} at {place}" for label, needed, place in steps[:_MOST_STEPS]]
            if len(steps) > _MOST_STEPS:
                advice.append(f"… and {len(steps) - _MOST_STEPS} more, back to {cycle[0]}")
            shown = " → ".join(str(label) for label in cycle[:_MOST_STEPS])
            more = " → …" if len(steps) > _MOST_STEPS else ""
            self._errors.add(f"dependency cycle: {shown}{more} → {cycle[0]}", steps[0][2], *advice)


def _place_of(target: Target, needed: Label) -> Location:
    """Where a target names another one."""
    for attribute in target.schema.attributes:
        origin = target.origin_of(attribute.name)
        if attribute.is_label and origin is not None:
            value = target.get(attribute.name)
            if value == needed:
                return origin.location
            if isinstance(value, tuple) and needed in value:
                return origin.at(value.index(needed)).location
    return target.location
