"""What toolchains are made of on this machine: distributions, programs, files and folders, each by its content."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from mlcbuild.cache.stat_cache import identity_of
from mlcbuild.engine.distributions import Distributions
from mlcbuild.engine.json_cache import JsonCache
from mlcbuild.regular_files import walk_through_links
from mlcbuild.system_programs import PROGRAM_FOLDERS
from mlcbuild.toolchains.programs import LIBRARY_FOLDERS, find_program, needed_libraries


class InstalledFiles:
    """Contents are remembered by stat in `memory`. Everything that is looked at is added to `observed`."""

    def __init__(
        self,
        memory: JsonCache,
        *,
        search_path: Sequence[str] | None = None,
        program_folders: Sequence[str] = PROGRAM_FOLDERS,
    ) -> None:
        self._memory = memory
        self._program_folders = tuple(program_folders)
        self._observed: set[str] = set()
        self.distributions = Distributions(memory, search_path)

    @property
    def observed(self) -> frozenset[str]:
        """Absolute paths whose state decided any answer, some of them absent."""
        return frozenset(self._observed | self.distributions.observed)

    def is_file(self, path: Path) -> bool:
        self._observed.add(str(path))
        return path.is_file()

    def content(self, path: Path) -> str:
        """The SHA-256 of a file, in hexadecimal. Raises OSError."""
        self._observed.add(str(path))

        def read() -> str:
            with path.open("rb") as stream:
                return hashlib.file_digest(stream, "sha256").hexdigest()

        return str(self._remembered(f"content {path}", list(identity_of(path.stat())), read))

    def tree(self, folder: Path) -> str:
        """A SHA-256 over the contents of all files below a folder, also behind links, and their relative paths.

        Raises OSError.
        """
        walked = walk_through_links(folder) if folder.is_dir() else ()
        files = sorted(Path(parent, name) for parent, _, names in walked for name in names)
        files = [path for path in files if path.is_file()]
        self._observed.update(map(str, {folder, *(path.parent for path in files), *files}))
        identities = "".join(f"{path} {identity_of(path.stat())}\n" for path in files)

        def read() -> str:
            whole = hashlib.sha256()
            for path in files:
                with path.open("rb") as stream:
                    digest = hashlib.file_digest(stream, "sha256").hexdigest()
                whole.update(f"{path.relative_to(folder)}\0{digest}\n".encode())
            return whole.hexdigest()

        return str(self._remembered(f"tree {folder}", hashlib.sha256(identities.encode()).hexdigest(), read))

    def program(self, name: str, *, advice: tuple[str, ...] = ()) -> Path:
        """The file of a system program. Raises LocalEnvironmentError with `advice` if no folder has it."""
        self._observed.update(f"{folder}/{name}" for folder in self._program_folders)
        return find_program(name, self._program_folders, advice=advice)

    def libraries(self, program: Path, pattern: re.Pattern[bytes]) -> list[Path]:
        """The files of the libraries that a program loads and whose names match `pattern`."""

        def read() -> list[str]:
            needed = needed_libraries(program.read_bytes())
            return sorted(name.decode() for name in needed if pattern.fullmatch(name))

        found: list[Path] = []
        for name in self._remembered(f"libraries {program}", list(identity_of(program.stat())), read):
            paths = [Path(folder, name) for folder in LIBRARY_FOLDERS]
            self._observed.update(map(str, paths))
            found += [path for path in paths if path.is_file()][:1]
        return found

    def _remembered(self, key: str, state: object, read: Callable[[], Any]) -> Any:
        """The result of `read`, remembered for as long as the state of `key` stays the same."""
        remembered = self._memory.get(key)
        if isinstance(remembered, list) and len(remembered) == 2 and remembered[0] == state:
            return remembered[1]
        answer = read()
        self._memory.set(key, [state, answer])
        return answer
