"""Every error that is reported to a user, as one class tree.

::

    MlcbuildError
    ├── UsageError                  an error in the command line or a variable
    ├── WorkspaceError              an error in a BUILD.toml, a rule file or a settings file
    ├── BuildError                  an action failed because of its inputs
    │   └── StageError              raised inside a stage: bad weights, bad config
    ├── FetchError                  a fetch failed, or the digest of the file differs from its pin
    ├── InterruptedBuildError       Ctrl-C
    └── InfrastructureError         a failure of the environment; the same command may succeed later
        ├── LocalEnvironmentError   disk full, missing tool, tvm-ffi of the wrong version
        ├── CacheError              the store could not be read or written
        └── InternalError           a bug in mlcbuild

An error says what is wrong, where, and what to do. Only `mlcbuild.cli` turns one into an exit code.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

# A byte of a name that is not UTF-8, as Python has it in text, and as `repr` writes that.
_BYTE = re.compile(r"[\udc80-\udcff]|\\udc[89a-f][0-9a-f]")


def readable(text: str) -> str:
    """`text` with the bytes of names that are not UTF-8 written as `\\xff`."""
    if text.isascii() and "\\udc" not in text:
        return text
    return _BYTE.sub(
        lambda found: f"\\x{found[0][-2:] if len(found[0]) > 1 else f'{ord(found[0]) - 0xDC00:02x}'}", text
    )


@dataclass(frozen=True, kw_only=True, order=True)
class Location:
    """A place in a file: `line` and `column` count from 1; 0 means the whole file."""

    path: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return ":".join([self.path, *(str(number) for number in (self.line, self.column) if number)])


class MlcbuildError(Exception):
    """What is wrong (`message`), where (`location`), and what to do (`advice`, one hint a line)."""

    def __init__(self, message: str, *, location: Location | None = None, advice: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.message = readable(message)
        self.location = location
        self.advice = tuple(readable(hint) for hint in advice)

    def __str__(self) -> str:
        head = f"{self.location}: {self.message}" if self.location else self.message
        return "\n".join([head, *(f"  {hint}" for hint in self.advice)])


class UsageError(MlcbuildError):
    """An error in the command line or an environment variable."""


class WorkspaceError(MlcbuildError):
    """An error in a BUILD.toml, a label, an attribute, a pattern, a dependency, a rule file or a settings file."""


class WorkspaceErrors(WorkspaceError):
    """Several errors that were found together, in the order of the files."""

    def __init__(self, errors: tuple[WorkspaceError, ...]) -> None:
        super().__init__(f"{len(errors)} errors" if len(errors) != 1 else "1 error")
        self.errors = errors

    def __str__(self) -> str:
        return "\n".join(str(error) for error in self.errors)


class BuildError(MlcbuildError):
    """An action failed because of its inputs."""


class StageError(BuildError):
    """A stage cannot use its input. The message reaches the user without a traceback."""


class FetchError(MlcbuildError):
    """A fetch failed, or the digest of the file differs from its pin."""


class InterruptedBuildError(MlcbuildError):
    """The user interrupted the build."""


class InfrastructureError(MlcbuildError):
    """A failure of the environment, not of the input; the same command may succeed later."""


class LocalEnvironmentError(InfrastructureError):
    """This machine lacks something: disk space, a tool, a library of the right version."""


class CacheError(InfrastructureError):
    """A store could not be read or written."""


class InternalError(InfrastructureError):
    """A bug in mlcbuild: an invariant does not hold."""
