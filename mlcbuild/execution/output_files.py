"""Collects what an action made: the declared files, and every file in the declared directories."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from mlcbuild.cache.digest import Digest
from mlcbuild.cache.store import LocalBlobStore
from mlcbuild.engine.executor import FileEntry
from mlcbuild.figures import shortened_list

_MOST_SHOWN = 20


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class CollectedFile:
    """A regular file at `file` that is an output with the path `path`, relative to the action's directory."""

    path: str
    file: Path
    is_executable: bool


class OutputError(Exception):
    """An output is missing, or is something that cannot be stored. The message is for people."""


def store_outputs(
    store: LocalBlobStore, directory: Path, outputs: Sequence[str], *, inputs: Iterable[str] = (), move: bool = True
) -> tuple[FileEntry, ...]:
    """Move the files of all declared outputs into the store. Raises OutputError, OSError and the store's errors.

    `inputs` are the paths of inputs, which are not told as something that the action made.
    """
    stored: dict[Path, Digest] = {}
    entries = []
    for output in collect(directory, outputs, inputs):
        if output.file not in stored:
            stored[output.file] = store.put_file(output.file, move=move)
        entries.append(FileEntry(path=output.path, digest=stored[output.file], is_executable=output.is_executable))
    return tuple(entries)


def store_made(store: LocalBlobStore, directory: Path, outputs: Sequence[str]) -> tuple[FileEntry, ...]:
    """Copy what an action that failed made of its declared outputs; nothing of outputs that cannot be stored."""
    made = [path for path in outputs if os.path.lexists(directory / path)]
    try:
        return store_outputs(store, directory, made, move=False)
    except OutputError:
        return ()


def collect(directory: Path, outputs: Sequence[str], inputs: Iterable[str] = ()) -> list[CollectedFile]:
    """The files of all declared outputs, sorted by path. Raises OutputError.

    A symbolic link counts as what it points to. It must be relative and stay in the action's directory.
    """
    root = Path(os.path.realpath(directory))
    missing = [path for path in outputs if not os.path.lexists(root / path)]
    if missing:
        present = {_relative(root, file) for file in root.rglob("*") if file.is_file() and not file.is_symlink()}
        made = sorted(present.difference(inputs))
        hint = f"\n  it made: {shortened_list(made, _MOST_SHOWN)}" if made else ""
        raise OutputError(f"did not make the declared {_named(missing)}{hint}")
    found: list[CollectedFile] = []
    for path in outputs:
        if path.endswith("/"):
            found += _walk(root, root / path, path.removesuffix("/"), ())
        else:
            found.append(_file(root, root / path, path))
    return sorted(found)


def _walk(root: Path, directory: Path, path: str, above: tuple[Path, ...]) -> Iterator[CollectedFile]:
    real = _resolve(root, directory, path)
    if not real.is_dir():
        raise OutputError(f"output {path!r} was declared as a directory and is a file")
    if real in above:
        raise OutputError(f"output {path!r} is a symbolic link to a directory that holds it")
    with os.scandir(real) as entries:
        names = sorted(entry.name for entry in entries)
    for name in names:
        inside = f"{path}/{name}"
        try:
            name.encode()
        except UnicodeEncodeError:
            raise OutputError(f"output {inside!r}: the name is not UTF-8") from None
        target = _resolve(root, real / name, inside)
        if target.is_dir():
            yield from _walk(root, target, inside, (*above, real))
        else:
            yield _file(root, target, inside)


def _file(root: Path, file: Path, path: str) -> CollectedFile:
    real = _resolve(root, file, path)
    mode = real.stat().st_mode
    if stat.S_ISDIR(mode):
        raise OutputError(f'output {path!r} was declared as a file and is a directory (declare it as "{path}/")')
    if not stat.S_ISREG(mode):
        raise OutputError(f"output {path!r} is neither a file nor a directory (mode {stat.filemode(mode)})")
    return CollectedFile(path=path, file=real, is_executable=bool(mode & stat.S_IXUSR))


def _resolve(root: Path, file: Path, path: str) -> Path:
    """Follow symbolic links. Each must be relative and lead to something inside `root`."""
    if not _leads_through_links(str(root), str(file)):
        return file
    real = Path(os.path.realpath(file))
    if real == file:
        return real
    if file.is_symlink() and file.readlink().is_absolute():
        raise OutputError(f"output {path!r} is a symbolic link to the absolute path {str(file.readlink())!r}")
    if not real.is_relative_to(root):
        raise OutputError(f"output {path!r} is a symbolic link that leaves the action's directory")
    if not real.exists():
        raise OutputError(f"output {path!r} is a symbolic link to nothing ({str(file.readlink())!r})")
    return real


def _leads_through_links(root: str, file: str) -> bool:
    """Whether a path has a symbolic link below `root`, which is a real path. Faster than to resolve the path."""
    parts = file[len(root) + 1 :].split("/")
    step = root
    for part in parts:
        step = f"{step}/{part}"
        if part == ".." or os.path.islink(step):  # noqa: PTH114
            return True
    return False


def _relative(root: Path, file: Path) -> str:
    return file.relative_to(root).as_posix()


def _named(paths: Sequence[str]) -> str:
    listed = ", ".join(repr(path) for path in paths)
    return f"output {listed}" if len(paths) == 1 else f"outputs {listed}"
