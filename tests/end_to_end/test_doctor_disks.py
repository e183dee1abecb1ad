"""`mlcbuild doctor disk` on real file systems that are full, read-only, another user's, or without attributes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.end_to_end.test_full_disk import Inside, inside

__all__ = ["inside"]

_DOCTOR = """
import json, os, stat
from mlcbuild.cli.main import main

def doctor(cache, *parts):
    command = [sys.executable, "-m", "mlcbuild.cli.main", "doctor", *(parts or ["disk"]), "--output=json"]
    done = subprocess.run([*command, f"--disk-cache={cache}"], capture_output=True, text=True)
    # Progress, where a check takes over a second.
    assert all(line.startswith("disk: ") for line in done.stderr.splitlines()), done.stderr
    document = json.loads(done.stdout)
    assert document["exit_code"] == done.returncode
    return done.returncode, {check["name"]: check for check in document["checks"]}
"""


def test_a_disk_that_is_full(inside: Inside) -> None:
    inside.run(
        _DOCTOR
        + """
mount(world.cache, "size=2m")
(world.cache / "filler").write_bytes(bytes((2 << 20) - 4096))
code, found = doctor(world.cache)
assert code == 36
assert found["space"]["verdict"] == "error", found["space"]
assert found["space"]["advice"][0] == "free space: mlcbuild cache gc --max-size 50G"
problems = [check for check in found.values() if check["verdict"] == "error"]
assert {"space", "small writes"} <= {check["name"] for check in problems}
assert "no space left while" in found["small writes"]["measured"], found["small writes"]
# It took nothing away, and left nothing.
assert [path.name for path in world.cache.iterdir()] == ["filler"]
"""
    )


def test_a_disk_with_room_that_is_no_disk_of_files(inside: Inside) -> None:
    inside.run(
        _DOCTOR
        + """
mount(world.cache, "size=200m")
code, found = doctor(world.cache)
assert found["place"]["verdict"] == "warning"
assert "in memory" in found["place"]["measured"]
assert found["space"]["figures"]["free_bytes"] <= 200 << 20
# Too little for 64 MiB of a blob beside all else: less is written, and that works.
assert found["throughput"]["verdict"] == "ok", found["throughput"]
assert found["throughput"]["figures"]["size_bytes"] < 64 << 20
assert list(world.cache.iterdir()) == []
"""
    )


def test_a_disk_without_files_left(inside: Inside) -> None:
    inside.run(
        _DOCTOR
        + """
mount(world.cache, "size=64m", "nr_inodes=3")
code, found = doctor(world.cache)
assert code == 36
assert "no space left while" in found["small writes"]["measured"], found["small writes"]
assert list(world.cache.iterdir()) == []
"""
    )


def test_a_disk_that_is_read_only(inside: Inside) -> None:
    inside.run(
        _DOCTOR
        + """
mount(world.cache, "size=64m")
subprocess.run(["mount", "-o", "remount,ro", str(world.cache)], check=True)
code, found = doctor(world.cache)
assert code == 36
assert found["owner"]["measured"] == f"{world.cache} is on a file system that is mounted read-only", found["owner"]
assert "Read-only file system" in found["abilities"]["measured"], found["abilities"]
"""
    )


def test_a_workspace_on_a_disk_that_is_full(inside: Inside) -> None:
    inside.run(
        _DOCTOR
        + """
root = world.cache
mount(root, "size=1m")
(root / "BUILD.toml").write_text('[workspace]\\nname = "example"\\n')
try:
    (root / "filler").write_bytes(bytes(2 << 20))
except OSError:
    pass
os.chdir(root)
code, found = doctor(world.cache, "workspace")
assert code == 36
assert found["targets"]["verdict"] == "ok"
assert "is not writable: No space left on device" in found["state"]["measured"], found["state"]
"""
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become somebody else")
def test_a_cache_that_a_command_run_by_root_made(tmp_path: Path, inside: Inside) -> None:
    inside.run(
        _DOCTOR
        + """
mount(world.cache, "size=64m", "mode=755")
(world.cache / "v1/blake3/cas").mkdir(parents=True)
from mlcbuild.doctor.disk_cache import owner
if os.fork() == 0:
    # As nobody, who may look and not write. The folders around it are root's alone, so it stands in it.
    os.chdir(world.cache)
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
    finding = owner(Path("."))
    print(finding, file=sys.stderr)
    right = finding.verdict.value == "error" and "belongs to root" in finding.measured
    os._exit(0 if right and "sudo chown" in finding.advice[0] else 1)
_, status = os.wait()
assert status == 0
"""
    )
