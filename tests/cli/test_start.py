"""The program from its first line: what Ctrl-C does before the command line is imported."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from mlcbuild.cli.exit_codes import ExitCode

ROOT = Path(__file__).parents[2]
PROGRAM = """\
import os, signal, sys
from {module} import {function} as program


class Pressed:
    def find_spec(self, name, path=None, target=None):
        if name == "{when}":
            os.kill(os.getpid(), signal.SIGINT)


{ignoring}
sys.meta_path.insert(0, Pressed())
sys.argv = ["mlcbuild", "query", "//..."]
sys.exit(program())
"""


def _process(when: str, folder: Path, ignoring: str = "pass") -> subprocess.CompletedProcess[str]:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    module, _, function = scripts["mlcbuild"].partition(":")
    (folder / "BUILD.toml").write_text('[workspace]\nname = "w"\n')
    program = PROGRAM.format(module=module, function=function, when=when, ignoring=ignoring)
    return subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "when", ["typer", "mlcbuild.cli.main", "mlcbuild.cli.commands.query", "mlcbuild.workspace.loader"]
)
def test_ctrl_c_is_told_in_a_word_however_early_it_comes(tmp_path: Path, when: str) -> None:
    done = _process(when, tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (ExitCode.INTERRUPTED, "", "interrupted\n")


def test_where_ctrl_c_is_ignored_it_stays_so(tmp_path: Path) -> None:
    done = _process("typer", tmp_path, "signal.signal(signal.SIGINT, signal.SIG_IGN)")
    assert done.returncode == 0, done.stderr
