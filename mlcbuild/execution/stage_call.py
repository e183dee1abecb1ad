"""Call a stage's function in a process of its own, and say how it went.

This module is imported by the forked child alone. A call is a JSON object with `function`
(`package.module:name`), `inputs` ([argument, path or [path, …]] pairs), `groups` and `outputs` ([argument, path]
pairs), `parameters` (an object) and `hints` (an object). Paths are relative to the current directory, the
action's, and stay so: no absolute path can get into an output by way of an argument.

The answer is a JSON object: `kind` (`succeeded`, `failed` or `environment`) and `message`.
"""

from __future__ import annotations

import errno
import importlib
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mlcbuild.errors import InfrastructureError, MlcbuildError

_DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
_MESSAGE_CHARACTERS = 4000


def call(description: dict[str, Any]) -> dict[str, Any]:
    """Run the described call. Raises nothing: every failure is in the answer, its traceback on standard error."""
    kind, message = _outcome(description)
    return {"kind": kind, "message": message[:_MESSAGE_CHARACTERS]}


def _outcome(description: dict[str, Any]) -> tuple[str, str]:
    try:
        _function(description["function"])(**_arguments(description))
    except MlcbuildError as error:
        kind = "environment" if isinstance(error, InfrastructureError) or _disk_full(error) else "failed"
        return kind, str(error)
    except MemoryError:
        traceback.print_exc()
        return "environment", "out of memory\n  run fewer actions at once (--jobs), or use a machine with more memory"
    except BaseException as error:
        traceback.print_exc()
        if full := _disk_full(error):
            where = f" writing {full.filename}" if full.filename else ""
            return "environment", f"no space left on the disk{where}\n  free some space and build again"
        return "failed", f"{type(error).__name__}: {_first_paragraph(error)}"
    return "succeeded", ""


def _function(name: str) -> Any:
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module), attribute)


def _arguments(description: dict[str, Any]) -> dict[str, Any]:
    arguments: dict[str, Any] = dict(description["parameters"])
    for argument, value in description["inputs"]:
        arguments[argument] = Path(value) if isinstance(value, str) else tuple(sorted(map(Path, value)))
    for argument, path in description["groups"]:
        arguments[argument] = tuple(sorted(Path(path).iterdir()))
    for argument, path in description["outputs"]:
        arguments[argument] = Path(path)
    if description["hints"]:
        arguments["hints"] = description["hints"]
    return arguments


def _disk_full(error: BaseException) -> OSError | None:
    """The error in this one's chain that says the disk is full."""
    return next((one for one in _chain(error) if isinstance(one, OSError) and one.errno in _DISK_FULL), None)


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__ or current.__context__


def _first_paragraph(error: BaseException) -> str:
    text = str(error).strip()
    return " ".join(text.partition("\n\n")[0].split())[:1000] or "(no message)"
