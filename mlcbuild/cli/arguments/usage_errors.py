"""Errors of the command line, in the words of our other messages instead of typer's."""

from __future__ import annotations

from typing import Any

import typer

from mlcbuild.errors import UsageError

_GLOBAL_OPTIONS = ("--color", "--workspace", "-C", "--version")


def usage_error(error: typer.TyperException) -> UsageError:
    """Typer's error with advice."""
    possibilities = sorted(getattr(error, "possibilities", None) or ())
    message = (error.message if possibilities else error.format_message()).strip().removesuffix(".")
    message, _, suggested = message.partition(". Did you mean ")
    message = message[:1].lower() + message[1:].replace("'", '"')
    context: Any = getattr(error, "ctx", None)
    path = context.command_path if context else "mlcbuild"
    option = getattr(error, "option_name", "")
    advice = [f"did you mean {' or '.join(possibilities)}?"] if possibilities else []
    if suggested:
        advice.append(f"did you mean {suggested}".replace("'", '"'))
    if option in _GLOBAL_OPTIONS:
        advice.append(f"put it before the command: mlcbuild {option} … {path.removeprefix('mlcbuild ')} …")
    elif option.startswith(("-/", "-:")):
        advice.append(f"put patterns of targets to leave out after --: `{path} -- //models/... -//models:x`")
    elif option and path == "mlcbuild run":
        advice.append("put arguments for the program after --: mlcbuild run LABEL -- " + option)
    advice.append(f"see {path} --help")
    return UsageError(message, advice=tuple(advice))
