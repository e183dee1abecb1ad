"""The command line of scripts in two steps: `prepare` makes a folder where no GPU is, `check` tries it where one is."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path


def run_steps(
    told: str | None,
    names: Iterable[str],
    *,
    prepare: Callable[[str, Path, argparse.Namespace], None],
    check: Callable[[str, Path], Mapping[str, float]],
) -> None:
    """Ends the process: with 1 where an error that `check` finds is above the `bound` that it tells, or no number.
    `prepare` writes a file NAME.json of each of the `names`, all unless some are asked for."""
    parser = argparse.ArgumentParser(description=told, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=("prepare", "check"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("families", nargs="*")
    parser.add_argument("--quantization", default="q0f32")
    parser.add_argument("--arch", default="sm_90a")
    arguments = parser.parse_intermixed_args()
    if arguments.step == "prepare":
        arguments.folder.mkdir(parents=True, exist_ok=True)
        for name in arguments.families or names:
            prepare(name, arguments.folder, arguments)
            print(name, flush=True)
        return
    prepared = sorted(path.stem for path in arguments.folder.glob("*.json"))
    missing = sorted({*arguments.families} - {*prepared})
    if missing or not prepared:
        raise SystemExit(f"{arguments.folder} has no library of {', '.join(missing) or 'any family'}: prepare it first")
    failed = False
    for name in arguments.families or prepared:
        errors = check(name, arguments.folder)
        failed |= not all(error <= errors["bound"] for error in errors.values())
        print(name, json.dumps(errors), flush=True)
    raise SystemExit(failed)
