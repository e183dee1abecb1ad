"""What `tune measure` imports: nothing that reads workspaces, compiles or connects to anybody."""

from __future__ import annotations

import subprocess
import sys

_CODE = """
import sys
from mlcbuild.cli.commands import tune
from mlcbuild.cli.tune import measuring
rooms = ("workspace", "rules", "engine", "compiler", "execution", "cache", "toolchains")
print(sorted(name for name in sys.modules if name.startswith(tuple(f"mlcbuild.{room}" for room in rooms))))
print(sorted({"tvm", "toml_rs", "ray", "boto3", "grpc"} & set(sys.modules)))
"""


def test_measuring_needs_the_runtime_alone() -> None:
    done = subprocess.run([sys.executable, "-c", _CODE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rooms, others = done.stdout.splitlines()
    assert others == "[]"
    assert "mlcbuild.compiler" not in rooms
    assert "mlcbuild.rules" not in rooms
    assert "mlcbuild.workspace" not in rooms
