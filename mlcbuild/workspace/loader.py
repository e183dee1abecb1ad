"""Loads a workspace: reads the files that patterns need, checks them, and returns typed targets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from mlcbuild.errors import WorkspaceError, WorkspaceErrors
from mlcbuild.suggestions import known_values
from mlcbuild.workspace.attribute_override import parse_override
from mlcbuild.workspace.check import Checker
from mlcbuild.workspace.collector import without_collector
from mlcbuild.workspace.configuration import DEFAULT_CONFIGURATION, Configuration
from mlcbuild.workspace.earlier import EarlierLoad
from mlcbuild.workspace.error_collector import ErrorCollector
from mlcbuild.workspace.graph import reachable
from mlcbuild.workspace.label import Label, shown_package
from mlcbuild.workspace.observed import ObservedPaths
from mlcbuild.workspace.package_reader import Package, PackageReader
from mlcbuild.workspace.packages import BUILD_FILE, PackageTree
from mlcbuild.workspace.pattern import MANUAL_TAG, Pattern, PatternKind, parse_pattern, select
from mlcbuild.workspace.resolve import Resolver
from mlcbuild.workspace.schema import COMPATIBLE_WITH, RuleSchema
from mlcbuild.workspace.settings import (
    RuleFile,
    WorkspaceSettings,
    find_root,
    load_settings,
    package_of,
    read_settings,
)
from mlcbuild.workspace.target import Target

__all__ = [
    "BUILD_FILE",
    "LoadedWorkspace",
    "RuleFile",
    "WorkspaceSettings",
    "find_root",
    "load",
    "load_settings",
    "package_of",
]


@dataclass(frozen=True, kw_only=True)
class LoadedWorkspace:
    """A loaded workspace: every target of every package that was read, and the requested ones."""

    settings: WorkspaceSettings
    configuration: Configuration
    targets: Mapping[Label, Target]  # in the order of labels
    requested: tuple[Label, ...]  # what the patterns match, in the order of the patterns, then of labels
    named: frozenset[Label] = frozenset()  # those of them that a pattern names by their own label
    unmatched: tuple[str, ...] = ()  # sentences about wildcards that match nothing
    observed: ObservedPaths  # what affected the load
    named_packages: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # by each package that was read
    edited_since: Mapping[str, frozenset[Label]] = field(default_factory=dict)  # by digests of earlier loads
    digest: str = ""  # of all of this but `requested` and `named`; "" where it is not known
    request: str = ""  # stands for everything but files that decided this; "" where it is not known

    def target(self, label: Label) -> Target | None:
        """The target of that name. None for the label of an existing file (`Label.path`)."""
        return self.targets.get(label)

    def dependencies(self, label: Label) -> tuple[Label, ...]:
        """The targets that a target's attributes name, in the schema's order, without files."""
        return tuple(found for found in self.targets[label].referenced_labels if found in self.targets)

    def closure(self, labels: Iterable[Label] | None = None) -> tuple[Label, ...]:
        """The targets that `labels` (by default the requested ones) need, each after all that it needs."""
        return reachable(self.requested if labels is None else labels, self.dependencies)

    @property
    def nothing_matches(self) -> tuple[str, ...]:
        """Sentences for people: which wildcards match no target, or that nothing is left of what patterns match."""
        return self.unmatched if self.requested or self.unmatched else ("no targets match",)

    def select(self, patterns: Sequence[Pattern], *, with_manual: bool = False) -> tuple[Label, ...]:
        """The loaded targets that patterns name; wildcards leave those tagged "manual" out, or not."""
        return select(
            patterns,
            self.targets,
            is_manual=lambda label: not with_manual and MANUAL_TAG in self.targets[label].tags,
        )


def load(
    root: Path,
    schemas: Mapping[str, RuleSchema],
    patterns: Sequence[str],
    current_package: str = "",
    *,
    configuration: str = DEFAULT_CONFIGURATION,
    repositories: Mapping[str, str] | None = None,
    overrides: Sequence[str] = (),
    earlier: EarlierLoad | None = None,
) -> LoadedWorkspace:
    """Load the packages that `patterns` need, and all that their labels name, transitively.

    `current_package` is the package that relative patterns are relative to; `configuration` one that the root's
    `BUILD.toml` defines, or "default". `repositories` are built in: the text of a `BUILD.toml` by name, whose targets
    have labels `@name//:target`. `overrides` are arguments of `--set`, which take precedence over all files; the last
    one for an attribute counts. Of an `earlier` load of an equal request, what still holds is taken over. Raises
    LoadErrors with every mistake in the files that were read and in the patterns.
    """
    with without_collector():
        if earlier is not None and not overrides:
            again = _Loader(root, schemas, configuration, repositories, earlier).load_again(patterns, current_package)
            if again is not None:
                return again
        return _Loader(root, schemas, configuration, repositories).load(patterns, current_package, overrides)


class LoadErrors(WorkspaceErrors):
    """What is wrong with the files of a workspace; `sound` are the targets that none of it concerns, with those of them
    that were asked for."""

    def __init__(self, errors: tuple[WorkspaceError, ...], *, sound: LoadedWorkspace) -> None:
        super().__init__(errors)
        self.sound = sound


class _Loader:
    """One load: the packages that were read, and the errors that were found."""

    def __init__(
        self,
        root: Path,
        schemas: Mapping[str, RuleSchema],
        configuration: str,
        repositories: Mapping[str, str] | None,
        earlier: EarlierLoad | None = None,
    ) -> None:
        self._errors = ErrorCollector()
        self._earlier = earlier
        tree = PackageTree(root, repositories=repositories)
        self._taken_over = (earlier.targets_by_package(tree.build_file) if earlier else None) or {}
        tree = PackageTree(root, repositories=repositories, known=frozenset(self._taken_over))
        try:
            settings = read_settings(root, tree.file(""), self._errors)
        except WorkspaceError:
            settings = load_settings(root)  # Raises the error in the form of all others.
        self._tree = tree.ignoring(settings.ignored_folders)
        tree.observer.will_read(*(file.path for file in settings.rules))
        chosen = settings.configurations.get(configuration)
        self._is_configured = chosen is not None
        if chosen is None:
            self._errors.add(
                f'unknown configuration "{configuration}"',
                None,
                known_values(configuration, settings.configurations),
            )
        self._resolver = Resolver(settings=settings, configuration=chosen or Configuration(), errors=self._errors)
        self._schemas = schemas
        self._tables = PackageReader(schemas=schemas, resolver=self._resolver, errors=self._errors)
        self._packages: dict[str, Package] = {}
        self._named: dict[str, tuple[str, ...]] = {}
        self._checker = Checker(root, self._tree, self._packages, schemas, self._errors)

    def load_again(self, texts: Sequence[str], current_package: str) -> LoadedWorkspace | None:
        """What `load` returns. None where an edit may have changed what was taken over, or is wrong: `load` tells."""
        assert self._earlier is not None
        if not self._taken_over or not self._is_configured:
            return None
        patterns = self._read(texts, current_package, ())
        packages = self._packages
        if packages.keys() != self._earlier.loaded.named_packages.keys():
            return None
        for name, package in packages.items():
            if name not in self._taken_over and not self._earlier.still_allows(name, package.targets, self._taken_over):
                return None
        self._check(patterns)
        return None if self._errors.errors else self._loaded(self._targets, patterns)

    def load(self, texts: Sequence[str], current_package: str, overrides: Sequence[str]) -> LoadedWorkspace:
        patterns = self._read(texts, current_package, overrides)
        self._check(patterns)
        errors = self._errors.errors
        if errors:
            # What an unknown configuration would have said of any target is not known.
            sound = self._sound(self._targets, errors) if self._is_configured else {}
            raise LoadErrors(errors, sound=self._loaded(sound, patterns))
        loaded = self._loaded(self._targets, patterns)
        self._check_use_of_overrides(loaded)
        return loaded

    @property
    def _targets(self) -> dict[Label, Target]:
        return {target.label: target for package in self._packages.values() for target in package.targets.values()}

    def _read(self, texts: Sequence[str], current_package: str, overrides: Sequence[str]) -> list[Pattern]:
        """Read the packages that patterns and overrides need, and return the patterns."""
        self._resolver.check_configurations(self._schemas)
        patterns = [pattern for text in texts if (pattern := self._pattern(text, current_package))]
        outside = [*self._resolver.settings.references, *self._resolver.references]
        pending = {package: None for pattern in patterns for package in self._needed(pattern)}
        pending.update((found.label.package, None) for found in outside)
        pending.update((package, None) for package in self._read_overrides(overrides, current_package))
        self._read_all(pending)
        return patterns

    def _check(self, patterns: Sequence[Pattern]) -> None:
        """Check what was read against each other."""
        for pattern in patterns:
            self._check_pattern(pattern)
        self._check_overrides()
        self._checker.check([*self._resolver.settings.references, *self._resolver.references], self._resolver.paths)

    def _read_overrides(self, texts: Sequence[str], current_package: str) -> list[str]:
        """The packages of the targets whose attributes are set."""
        for text in texts:
            try:
                override = parse_override(text, current_package)
            except WorkspaceError as error:
                self._errors.add_error(error)
            else:
                self._tables.overrides[override.label, override.attribute] = override
        return [label.package for label, _ in self._tables.overrides]

    def _check_overrides(self) -> None:
        for (label, name), override in self._tables.overrides.items():
            package = self._packages.get(label.package)
            target = package.targets.get(label.name) if package else None
            if package is None:
                message, advice = self._checker.no_package(label.package, sorted(self._packages))
                self._errors.add(message, override.origin, advice)
            elif target is None and not package.may_define(label.name):
                message, advice = self._checker.missing(label, "")
                self._errors.add(message, override.origin, advice)
            elif target is not None and name not in target.schema.by_name:
                self._errors.add(
                    f'unknown attribute "{name}" of {target.schema.name} in {label}',
                    override.origin,
                    known_values(name, target.schema.by_name),
                )

    def _check_use_of_overrides(self, loaded: LoadedWorkspace) -> None:
        """Raises LoadErrors if an attribute is set that changes nothing of what is asked for."""
        if not self._tables.overrides:
            return
        needed = frozenset(loaded.closure())
        for (label, _), override in self._tables.overrides.items():
            if label not in needed:
                self._errors.add(f"no target that is asked for needs {label}", override.origin)
        if self._errors.errors:
            raise LoadErrors(self._errors.errors, sound=loaded)

    def _loaded(self, targets: Mapping[Label, Target], patterns: Sequence[Pattern]) -> LoadedWorkspace:
        observed = self._tree.observer.paths
        loaded = LoadedWorkspace(
            settings=self._resolver.settings,
            configuration=self._resolver.configuration,
            targets={label: targets[label] for label in sorted(targets)},
            requested=(),
            observed=self._earlier.loaded.observed.with_newer(observed) if self._earlier else observed,
            named_packages=self._named,
            edited_since=self._earlier.edited_since(targets) if self._earlier else {},
        )
        requested = loaded.select(patterns)
        named = {pattern.label for pattern in patterns if pattern.kind is PatternKind.TARGET and not pattern.negative}
        unmatched = []
        for each in patterns:
            if each.kind is not PatternKind.TARGET and not each.negative and not loaded.select([each]):
                manual = loaded.select([each], with_manual=True)
                but = ' but those tagged "manual", which are named one by one' if manual else ""
                unmatched.append(f'no targets match "{each.text}"{but}')
        return replace(loaded, requested=requested, named=frozenset(requested) & named, unmatched=tuple(unmatched))

    def _sound(self, targets: Mapping[Label, Target], errors: Sequence[WorkspaceError]) -> dict[Label, Target]:
        """The targets that no error concerns: none is at a place of theirs, and all that they need is sound as well."""
        places = {(found.path, found.line) for error in errors if (found := error.location) is not None}

        def is_concerned(target: Target) -> bool:
            origins = (target.origin, *filter(None, map(target.origin_of, (*target.values, "name", COMPATIBLE_WITH))))
            return any((at.location.path, at.location.line) in places for at in origins)

        users: dict[Label, list[Label]] = {}
        for label, target in targets.items():
            for referred in (*target.referenced_labels, *((target.platform,) if target.platform is not None else ())):
                users.setdefault(referred, []).append(label)
        unsound = [label for label, target in targets.items() if is_concerned(target)]
        unsound += [label for label in users if label not in targets and not (self._tree.root / label.path).exists()]
        seen = set(unsound)
        while unsound:
            further = [user for user in users.get(unsound.pop(), ()) if user not in seen]
            seen.update(further)
            unsound += further
        return {label: target for label, target in targets.items() if label not in seen}

    def _pattern(self, text: str, current_package: str) -> Pattern | None:
        try:
            return parse_pattern(text, package=current_package, is_package=self._tree.is_package)
        except WorkspaceError as error:
            self._errors.add_error(error)
            return None

    def _needed(self, pattern: Pattern) -> list[str]:
        """The packages to read for a pattern. If there are none, an error is collected."""
        if pattern.kind is PatternKind.RECURSIVE:
            # A negative pattern removes only what another pattern has read.
            found = [] if pattern.negative else list(self._tree.below(pattern.package))
            if not found and not pattern.negative:
                shown = shown_package(pattern.package)
                self._errors.add(f'no packages below {shown}, for the pattern "{pattern.text}"', None)
            return found
        if self._tree.is_package(pattern.package):
            return [pattern.package]
        message, advice = self._checker.no_package(
            pattern.package, [package for package in self._tree.below("") if package]
        )
        self._errors.add(f'{message}, for the pattern "{pattern.text}"', None, advice)
        return []

    def _read_all(self, pending: dict[str, None]) -> None:
        """Read packages, and the packages that their labels name, until there are no more."""
        while pending:
            name, _ = pending.popitem()
            if name in self._packages or not self._tree.is_package(name):
                continue
            if self._earlier and name in self._taken_over:
                self._packages[name] = Package(name=name, targets=self._taken_over[name])
                self._named[name] = self._earlier.loaded.named_packages[name]
                pending.update(dict.fromkeys(self._named[name]))
                continue
            try:
                package = self._tables.read_package(name, self._tree.file(name))
            except WorkspaceError as error:
                self._errors.add_error(error)
                package = Package(name=name, incomplete=True)
            self._packages[name] = package
            self._named[name] = tuple(dict.fromkeys(reference.label.package for reference in package.references))
            pending.update(dict.fromkeys(self._named[name]))

    def _check_pattern(self, pattern: Pattern) -> None:
        package = self._packages.get(pattern.package)
        if pattern.kind is PatternKind.TARGET and package is not None and not package.may_define(pattern.name):
            message, advice = self._checker.missing(pattern.label, f', for the pattern "{pattern.text}"')
            self._errors.add(message, None, advice)
