"""Resolves artifacts to files: the files that a consumer needs, and whether a result has the declared outputs."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from mlcbuild.cache.digest import Digest
from mlcbuild.engine.action import (
    Action,
    Artifact,
    CachePolicy,
    DerivedArtifact,
    DiscoveredArtifacts,
    SourceArtifact,
)
from mlcbuild.engine.executor import FileEntry
from mlcbuild.engine.large_folders import FEWEST_FILES
from mlcbuild.engine.nodes import ActionNode, SourceNode
from mlcbuild.engine.shared_form import is_remade
from mlcbuild.engine.transitions import NodeState
from mlcbuild.errors import BuildError
from mlcbuild.figures import shortened_list

# Files sorted by path, and the workspace paths among them.
Resolved = tuple[tuple[FileEntry, ...], tuple[str, ...]]


def files_at_hand(
    needs: Sequence[tuple[str, Artifact]],
    sources: Mapping[str, SourceNode],
    actions: Mapping[str, ActionNode],
) -> Resolved | None:
    """What `files_of` returns, for the common case: single files, all of them made. None in every other case."""
    found: dict[str, FileEntry] = {}
    from_sources: list[str] = []
    for place, artifact in needs:
        if type(artifact) is DerivedArtifact:
            node = actions.get(artifact.action)
            if node is None or node.state is not NodeState.DONE:
                return None
            entry = _by_path(node).get(artifact.path)
            if entry is None or place.endswith("/"):
                return None
            if entry.is_remade:
                return None
            digest, is_executable, stands_for = entry.digest, entry.is_executable, entry.stands_for
        elif type(artifact) is SourceArtifact:
            source = sources.get(artifact.path)
            if source is None or source.digest is None or place.endswith("/"):
                return None
            digest, is_executable, stands_for = source.digest, source.is_executable, None
            from_sources.append(artifact.path)
        else:
            return None
        found[place] = FileEntry(path=place, digest=digest, is_executable=is_executable, stands_for=stands_for)
    if len(found) != len(needs):
        return None
    return tuple(found[place] for place in sorted(found)), tuple(from_sources)


def files_of(
    needs: Iterable[tuple[str, Artifact]],
    *,
    source: Callable[[str], SourceNode],
    producer: Callable[[str], ActionNode],
) -> Resolved:
    """The files of a consumer whose producers are all done, sorted by path, and the source paths among them.

    The files of a directory are moved below the consumer's path; the members of a group lie below it by their base
    names. Raises BuildError for a file that its producer did not make, and for two files at one path.
    """
    placed: dict[str, FileEntry] = {}
    sources: list[str] = []

    def place(path: str, artifact: Artifact) -> None:
        if isinstance(artifact, DerivedArtifact):
            for entry in _files_of_derived(path, artifact, producer(artifact.action)):
                add(entry)
        elif isinstance(artifact, SourceArtifact):
            node = source(artifact.path)
            if node.digest is None or not path or path.endswith("/"):
                raise BuildError(f"a source file cannot be placed at {path!r}: {artifact.path}")
            sources.append(artifact.path)
            add(FileEntry(path=path, digest=node.digest, is_executable=node.is_executable))
        else:
            for member in members_of(artifact, producer(artifact.action)):
                if isinstance(member, DiscoveredArtifacts):
                    place(path, member)
                else:
                    place(path + _base_name(member), member)

    def add(entry: FileEntry) -> None:
        if placed.setdefault(entry.path, entry) is not entry:
            raise BuildError(f"two inputs at one path: {entry.path!r}")

    for path, artifact in needs:
        place(path, artifact)
    return tuple(placed[path] for path in sorted(placed)), tuple(sources)


def members_of(group: DiscoveredArtifacts, node: ActionNode) -> tuple[Artifact, ...]:
    """The artifacts of a group whose action is done. Raises BuildError for a group that it did not announce."""
    groups = node.groups or {}
    if group.group not in groups:
        known = ", ".join(sorted(groups)) or "none"
        raise BuildError(f"{group.action} announced no group {group.group!r}", advice=(f"it announced: {known}",))
    return groups[group.group]


def _base_name(artifact: SourceArtifact | DerivedArtifact) -> str:
    directory = "/" if artifact.path.endswith("/") else ""
    return artifact.path.removesuffix("/").rpartition("/")[2] + directory


def _by_path(node: ActionNode) -> Mapping[str, FileEntry]:
    """The outputs of an action that is done, by path.

    Those of a non-reproducible action stand for its key: whatever bytes a run made, what needs them has one key.
    """
    if node.by_path is None:
        outputs = node.outputs or ()
        if node.action.cache is CachePolicy.NON_REPRODUCIBLE and node.key is not None:
            outputs = tuple(replace(entry, stands_for=_stand_in(node.key, entry.path)) for entry in outputs)
        elif node.action.cache is CachePolicy.REMADE:
            outputs = tuple(replace(entry, is_remade=is_remade(node.action, entry.path)) for entry in outputs)
        node.by_path = {entry.path: entry for entry in outputs}
        node.placed = {}
    return node.by_path


def _stand_in(key: Digest, path: str) -> Digest:
    """A digest of nothing but what an output was made from, and which of the outputs it is."""
    text = f"{key} {path}".encode("utf-8", "surrogatepass")
    return Digest(hashlib.sha256(text).hexdigest(), len(text))


def _files_of_derived(place: str, artifact: DerivedArtifact, node: ActionNode) -> Iterable[FileEntry]:
    made = _by_path(node)
    if not artifact.path.endswith("/"):
        entry = made.get(artifact.path)
        if entry is None:
            raise BuildError(
                f"{artifact.action} did not make the file {artifact.path!r}",
                advice=(f"it made: {shortened_list(list(made)) or 'nothing'}",),
            )
        if not place or place.endswith("/"):
            raise BuildError(f"{artifact.path!r} of {artifact.action} is a file, not a directory for {place!r}")
        return (entry if entry.path == place else replace(entry, path=place),)
    if place and not place.endswith("/"):
        raise BuildError(f"{artifact.path!r} of {artifact.action} is a directory, not a file for {place!r}")
    known = node.placed.get((artifact.path, place))
    if known is not None:
        return known
    found = tuple(
        FileEntry(
            path=place + path[len(artifact.path) :],
            digest=entry.digest,
            is_executable=entry.is_executable,
            stands_for=entry.stands_for,
            is_remade=entry.is_remade,
        )
        for path, entry in made.items()
        if path.startswith(artifact.path)
    )
    if len(found) >= FEWEST_FILES:
        node.placed[artifact.path, place] = found
    return found


def error_in_outputs(action: Action, outputs: Sequence[FileEntry]) -> str:
    """What is wrong with the files of a result, for people; "" where it has all declared outputs and no others.

    A declared directory may be empty.
    """
    if len(outputs) == 1 and len(action.outputs) == 1 and outputs[0].path == action.outputs[0]:
        return "" if not outputs[0].path.endswith("/") else f"it reported a file {outputs[0].path!r}"
    made = {entry.path for entry in outputs}
    if len(made) != len(outputs):
        return "it reported two outputs at one path"
    directories = tuple(path for path in action.outputs if path.endswith("/"))
    for path in action.outputs:
        if not path.endswith("/") and path not in made:
            return f"it did not make its output {path!r}"
    extra = sorted(path for path in made.difference(action.outputs) if not path.startswith(directories))
    return f"it reported an output that it does not declare: {extra[0]!r}" if extra else ""
