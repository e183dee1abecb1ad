"""Runs a phase again and writes its module after each pass, for people: `mlcbuild show --dump --passes` calls it, no
build does.

Takes the arguments of the phase's own stage, which is the plug-in `phase`. Besides that stage's outputs it writes the
directory `dump`: `00-input.py`, a file `NN-Pass.py` for each pass that changed the module, and `passes.txt`, the list.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tvm

from mlcbuild.compiler.phases.pipeline import observed
from mlcbuild.compiler.stages.render_ir import module_text

_UNSAFE = re.compile(r"[^A-Za-z0-9_.+-]+")


def run(*, phase: Callable[..., None], dump: Path, **arguments: Any) -> None:
    """Raises what the phase raises."""
    dump.mkdir(exist_ok=True)
    texts: list[str] = []

    def write(name: str, module: tvm.IRModule) -> None:
        text = module_text(module)
        number = len(texts)
        has_changed = not texts or text != texts[-1]
        texts.append(text)
        if has_changed:
            file = dump / f"{number:02}-{_UNSAFE.sub('-', name) or 'input'}.py"
            file.write_text(text, encoding="utf-8")
        with (dump / "passes.txt").open("a", encoding="utf-8") as listing:
            told = "" if has_changed else "  changed nothing"
            listing.write(f"{number:02}  {name or 'input'}{told}\n")

    with observed(write):
        phase(**arguments)
