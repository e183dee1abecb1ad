"""What a remote needs is imported when one is connected to, and not before."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("grpc", "ssl", "http.client", "urllib3", "urllib.request", "boto3", "google.protobuf", "asyncio")


@pytest.mark.parametrize("package", ["http", "grpc"])
def test_importing_a_kind_of_remote_imports_nothing_of_the_network(package: str) -> None:
    program = f"import sys, mlcbuild.cache.remote.{package}; print([name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
