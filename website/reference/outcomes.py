"""Exit codes, and the classes of errors that end a command with them."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

from mlcbuild import errors
from mlcbuild.cli.exit_codes import ExitCode, exit_code_of, meaning, retry_line
from website.reference.tables import table

_HEAD = """\
# Exit codes and errors

Made from the code. The numbers are Bazel's, except for 10 and 11. The [command line](command-line.md#exit-codes) says
more about each of them, and [How we write](messages.md#an-error) what a message consists of.

## Exit codes
"""
_ERRORS = """
## Errors

Every error that is told to a user is of one of these classes. A rule, a stage or a pass of a workspace raises them from
`mlcbuild.errors`; [own-rules.md](own-rules.md) shows how.
"""


def outcomes_page() -> str:
    """The page, in Markdown."""
    codes = [
        (str(int(code)), f"`{code.name}`", meaning(code), retry_line(code).partition(": ")[2]) for code in ExitCode
    ]
    classes = [
        (f"{'· ' * depth}`{error.__name__}`", inspect.getdoc(error) or "", str(int(exit_code_of(error("")))))
        for error, depth in _tree(errors.MlcbuildError, 0)
        if error not in (errors.MlcbuildError, errors.WorkspaceErrors)
    ]
    return "\n".join(
        [
            _HEAD,
            table(("code", "name", "meaning", "the same command may succeed later, because"), codes),
            _ERRORS,
            table(("class", "meaning", "exit code"), classes),
        ]
    )


def _tree(error: type[errors.MlcbuildError], depth: int) -> Iterator[tuple[type[errors.MlcbuildError], int]]:
    yield error, depth
    for subclass in error.__subclasses__():
        if subclass.__module__ == errors.__name__:
            yield from _tree(subclass, depth + (error is not errors.MlcbuildError))
