"""Gather what an action made: declared files, and every file in declared directories."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class OutputFile:
    """A regular file at `file`, to be known as `path` (relative to the action's directory)."""

    path: str
    file: Path
    is_executable: bool


class OutputProblem(Exception):  # noqa: N818
    """An output is missing, or not something that can be kept; the message is for people."""


def collect(directory: Path, outputs: Sequence[str]) -> list[OutputFile]:
    """The files of all declared outputs, sorted by path. Raises OutputProblem.

    A symbolic link stands for what it points to; it must be relative and stay in the action's directory.
    """
    root = Path(os.path.realpath(directory))
    missing = [path for path in outputs if not os.path.lexists(root / path)]
    if missing:
        made = sorted(_relative(root, file) for file in root.rglob("*") if file.is_file() and not file.is_symlink())
        hint = f"\n  it made: {', '.join(made[:20])}{', …' if len(made) > 20 else ''}" if made else ""
        raise OutputProblem(f"did not make the declared {_named(missing)}{hint}")
    found: list[OutputFile] = []
    for path in outputs:
        if path.endswith("/"):
            found += _walk(root, root / path, path.removesuffix("/"), ())
        else:
            found.append(_file(root, root / path, path))
    return sorted(found)


def _walk(root: Path, directory: Path, path: str, above: tuple[Path, ...]) -> Iterator[OutputFile]:
    real = _resolve(root, directory, path)
    if not real.is_dir():
        raise OutputProblem(f"output {path!r} was declared as a directory and is a file")
    if real in above:
        raise OutputProblem(f"output {path!r} is a symbolic link to a directory that holds it")
    with os.scandir(real) as entries:
        names = sorted(entry.name for entry in entries)
    for name in names:
        inside = f"{path}/{name}"
        try:
            name.encode()
        except UnicodeEncodeError:
            raise OutputProblem(f"output {inside!r}: the name is not UTF-8") from None
        target = _resolve(root, real / name, inside)
        if target.is_dir():
            yield from _walk(root, target, inside, (*above, real))
        else:
            yield _file(root, target, inside)


def _file(root: Path, file: Path, path: str) -> OutputFile:
    real = _resolve(root, file, path)
    mode = real.stat().st_mode
    if stat.S_ISDIR(mode):
        raise OutputProblem(f'output {path!r} was declared as a file and is a directory (declare it as "{path}/")')
    if not stat.S_ISREG(mode):
        raise OutputProblem(f"output {path!r} is neither a file nor a directory (mode {stat.filemode(mode)})")
    return OutputFile(path=path, file=real, is_executable=bool(mode & stat.S_IXUSR))


def _resolve(root: Path, file: Path, path: str) -> Path:
    """Follow symbolic links, each of which must be relative, to something inside `root`."""
    if not _leads_through_links(str(root), str(file)):
        return file
    real = Path(os.path.realpath(file))
    if real == file:
        return real
    if file.is_symlink() and file.readlink().is_absolute():
        raise OutputProblem(f"output {path!r} is a symbolic link to the absolute path {str(file.readlink())!r}")
    if not real.is_relative_to(root):
        raise OutputProblem(f"output {path!r} is a symbolic link that leaves the action's directory")
    if not real.exists():
        raise OutputProblem(f"output {path!r} is a symbolic link to nothing ({str(file.readlink())!r})")
    return real


def _leads_through_links(root: str, file: str) -> bool:
    """Whether a path below `root`, which is real, has a symbolic link below it: quicker than to resolve it."""
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
