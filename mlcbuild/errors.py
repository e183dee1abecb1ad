"""Every error a user can meet, as one class tree.

::

    MlcbuildError
    ├── UsageError                  the command line is wrong                        (yours)
    ├── WorkspaceError              a BUILD.toml, label, attribute or cycle is wrong  (yours)
    ├── BuildError                  an action failed for a reason in its inputs       (yours)
    │   └── StageError              raised inside a stage: bad weights, bad config
    ├── FetchError                  something could not be fetched, or has another digest
    ├── InterruptedBuildError       Ctrl-C
    └── InfrastructureError         the machine, not your input: may be retried unchanged
        ├── LocalEnvironmentError   disk full, missing tool, tvm-ffi of the wrong version
        ├── CacheError              the store could not be read or written
        └── InternalError           a bug of ours

An error says what happened, where, and what to do. Only `mlcbuild.cli` turns one into an exit code.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, order=True)
class Location:
    """A place in a file: `line` and `column` count from 1; 0 means the whole file."""

    path: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return ":".join([self.path, *(str(number) for number in (self.line, self.column) if number)])


class MlcbuildError(Exception):
    """What happened (`message`), where (`location`), and what to do (`advice`, one hint a line)."""

    def __init__(self, message: str, *, location: Location | None = None, advice: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.location = location
        self.advice = advice

    def __str__(self) -> str:
        head = f"{self.location}: {self.message}" if self.location else self.message
        return "\n".join([head, *(f"  {hint}" for hint in self.advice)])


class UsageError(MlcbuildError):
    """The command line is wrong."""


class WorkspaceError(MlcbuildError):
    """A BUILD.toml file, label, attribute, pattern or dependency is wrong."""


class WorkspaceErrors(WorkspaceError):
    """All the mistakes found in one go, in file order."""

    def __init__(self, errors: tuple[WorkspaceError, ...]) -> None:
        super().__init__(f"{len(errors)} errors" if len(errors) != 1 else "1 error")
        self.errors = errors

    def __str__(self) -> str:
        return "\n".join(str(error) for error in self.errors)


class BuildError(MlcbuildError):
    """An action failed because of what it was given."""


class StageError(BuildError):
    """Raised by a stage for input it cannot use; the message reaches the user without a traceback."""


class FetchError(MlcbuildError):
    """A fetch failed, or what came has another digest than the pin."""


class InterruptedBuildError(MlcbuildError):
    """The user interrupted the build."""


class InfrastructureError(MlcbuildError):
    """The environment failed, not the input; the same command may work later."""


class LocalEnvironmentError(InfrastructureError):
    """This machine lacks something: disk space, a tool, a library of the right version."""


class CacheError(InfrastructureError):
    """A store could not be read or written."""


class InternalError(InfrastructureError):
    """A broken invariant of ours."""
