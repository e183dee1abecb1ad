"""Keeps the directories of failed actions: their inputs, whatever they made, and a script that runs them again."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

from mlcbuild.execution import environment
from mlcbuild.execution.preload import HIDDEN
from mlcbuild.execution.scratch import remove

SCRIPT = "run.sh"
_CALL = "call.json"
_RERUN_STAGE = Path(__file__).with_name("rerun_stage.py")


def keep_failed_sandbox(directory: Path, parent: Path, identifier: str, body: Mapping[str, object]) -> Path:
    """Move an action's directory into `parent` and write a script into it. The directory that was kept when the action
    failed before is replaced.

    `body` is the request as the fork server's child got it. Returns the new path. Raises OSError.
    """
    kept = parent / re.sub(r"[^\w.-]+", "_", identifier).strip("_")
    parent.mkdir(parents=True, exist_ok=True)
    if kept.exists():
        remove(kept)
    directory.rename(kept)
    (kept / SCRIPT).write_text(_script(body, str(directory)), encoding="utf-8")
    (kept / SCRIPT).chmod(0o755)
    if "arguments" not in body:
        (kept / _CALL).write_text(json.dumps({**body, "hide": HIDDEN}, indent=1), encoding="utf-8")
    return kept


def _script(body: Mapping[str, object], old_path: str) -> str:
    variables, arguments = body["environment"], body.get("arguments")
    assert isinstance(variables, Mapping)
    if isinstance(arguments, tuple):
        command = list(arguments)
    else:
        variables = {**environment.of_server(), **variables}
        command = [sys.executable, "-s", "-P", str(_RERUN_STAGE), _CALL]
    words = [f"{name}={value}" for name, value in variables.items()] + command
    return "\n".join(
        (
            "#!/bin/sh",
            "# Runs the action again, in this directory and with its variables, but outside of the sandbox.",
            'cd "$(dirname "$0")" && here=$(pwd) || exit',
            "exec env -i \\",
            *(f"  {_quoted(word, old_path)} \\" for word in words[:-1]),
            f"  {_quoted(words[-1], old_path)}",
            "",
        )
    )


def _quoted(word: str, old_path: str) -> str:
    """A word for the shell, with the directory's new path in place of its old one."""
    return '"$here"'.join(shlex.quote(piece) if piece else "" for piece in word.split(old_path)) or "''"
