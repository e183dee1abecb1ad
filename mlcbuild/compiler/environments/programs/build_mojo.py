"""`source` (a Mojo file) → `made`: what `mojo build` makes of it. Needs mojo-compiler.

Mojo writes the place of its run-time libraries into what it links, so that place has a fixed, relative name.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

_SOURCE, _PROGRAM, _ROOT = "program.mojo", "program", "modular"
# With no features named, it takes those of its own processor, whichever the target's is.
_FEATURES = {"x86_64": "+sse2", "aarch64": "+neon"}


def run(*, source: Path, made: Path, form: str, host: str, processor: str, accelerator: str, optimization: int) -> None:
    """`form` is Mojo's own word: exe, shared-lib or object. An empty `accelerator` is none."""
    from mojo._package_root import get_package_root

    taken, placed = source.resolve(), made.resolve()
    root = Path(get_package_root()).absolute()
    os.chdir(os.environ["TMPDIR"])
    shutil.copyfile(taken, _SOURCE)
    Path(_ROOT).symlink_to(root)
    here = str(Path.cwd())
    own = {
        "HOME": here,
        "MODULAR_CACHE_DIR": f"{here}/cache",
        "MODULAR_TELEMETRY_ENABLED": "0",
        "MODULAR_CRASH_REPORTING_ENABLED": "0",
        "MODULAR_MAX_PACKAGE_ROOT": _ROOT,
        "MODULAR_MOJO_MAX_PACKAGE_ROOT": _ROOT,
        "MODULAR_MOJO_MAX_DRIVER_PATH": f"{_ROOT}/bin/mojo",
        "MODULAR_MOJO_MAX_IMPORT_PATH": f"{_ROOT}/lib/mojo",
    }
    command = [f"{_ROOT}/bin/mojo", "build", _SOURCE, "-o", _PROGRAM, "--emit", form, "-j", "1"]
    command += ["--optimization-level", str(optimization), "--target-triple", host, "--target-cpu", processor]
    command += ["--target-features", _FEATURES[host.partition("-")[0]]]
    if accelerator:
        command += ["--target-accelerator", accelerator]
    done = subprocess.run(command, env={**os.environ, **own}, capture_output=True, text=True, check=False)
    if done.returncode:
        told = done.stderr.strip() or done.stdout.strip() or f"exit code {done.returncode}"
        lines = [line for line in told.splitlines() if "error:" in line] or told.splitlines()
        raise SystemExit(f"Mojo cannot build the program: {lines[0].replace(f'{here}/', '').strip()}")
    shutil.move(_PROGRAM, placed)
