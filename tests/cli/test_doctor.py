"""`mlcbuild doctor`: its output, its exit codes, and that it leaves nothing behind."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from mlcbuild.cache import file_systems
from mlcbuild.cli.doctor.output import document, exit_code, finding_lines, summary
from mlcbuild.cli.exit_codes import ExitCode
from mlcbuild.cli.main import main
from mlcbuild.cli.output.terminal import Style
from mlcbuild.cli.output.text import COLUMNS
from mlcbuild.doctor import disk_cache, ray_cluster
from mlcbuild.doctor.check import Part
from mlcbuild.doctor.examination import Examined
from mlcbuild.doctor.finding import Finding, FindingCause, Verdict, failed, ok, skipped, warning, wrong_setting
from mlcbuild.execution.machine_resources import MachineResources
from mlcbuild.execution.ray.demand import Node
from mlcbuild.execution.ray.probing import ProbedNode
from mlcbuild.execution.ray.settings import RaySettings
from tests.cli.conftest import at_eighty_columns

Snapshot = Callable[[str, str], None]
Capture = pytest.CaptureFixture[str]

DISK = Part(name="disk", checks=lambda: ())
REMOTE = Part(name="remote", subject="s3://bucket/prefix", checks=lambda: ())


def examined(finding: Finding, *, part: Part = DISK, name: str = "space") -> Examined:
    return Examined(part=part, name=name, finding=finding, seconds=0.5)


def of_blame(cause: FindingCause) -> Examined:
    return examined(Finding(verdict=Verdict.ERROR, measured="x", cause=cause))


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace of its own, in which one stands, and a home without anything in it, on a disk that is called fit."""
    (tmp_path / "mounts").write_text("rootfs / ext4 rw 0 0\n")
    monkeypatch.setattr(file_systems, "MOUNTS", tmp_path / "mounts")
    for name, value in {"NO_SPACE": 0, "LITTLE_SPACE": 0, "LITTLE_SHARE": 0.0, "BIG_BYTES": 1 << 20}.items():
        monkeypatch.setattr(disk_cache, name, value)
    monkeypatch.setattr(disk_cache, "_SLOW_WRITE", 10.0)
    root = tmp_path / "workspace"
    root.mkdir()
    (root / "BUILD.toml").write_text('[workspace]\nname = "example"\n')
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(root)
    return root


def shown(text: str, place: Path) -> str:
    """Without what differs from machine to machine: figures, paths, kinds of file systems."""
    text = text.replace(str(place.parent), "<tmp>")
    text = re.sub(r"\d[\d,.]* ?(ms|s|[kMGT]?B/s|[kMGT]?B|%)(?!\w)", r"N \1", text)
    text = re.sub(r"N [kMGT]?B/s", "N MB/s", re.sub(r"N [kMGT]?B\b(?!/)", "N GB", text))
    return re.sub(r"N m?s\b", "N s", text)


def test_help(snapshot: Snapshot, capsys: Capture) -> None:
    assert main(["doctor", "--help"]) == 0
    snapshot("help-doctor", capsys.readouterr().out)


def test_how_findings_look(snapshot: Snapshot) -> None:
    found = [
        ok("64 GB free of 271 GB (24%)"),
        warning("3 GB free of 271 GB (1%)", "make room", "or move it"),
        failed("read-only file system\x1b[2J", "look at the kernel's log"),
        skipped("not tried"),
    ]
    lines = [line for finding in found for line in finding_lines(examined(finding), Style())]
    painted = [line for finding in found for line in finding_lines(examined(finding), Style(enabled=True))]
    counts = [summary([examined(finding) for finding in some]) for some in (found, found[:1], found[1:3])]
    snapshot("doctor-findings", "\n".join([*lines, "", *painted, "", *counts, ""]))


def test_the_exit_code_is_that_of_what_no_retry_mends() -> None:
    assert exit_code([]) is ExitCode.OK
    assert exit_code([examined(ok("x")), examined(warning("x")), examined(skipped("x"))]) is ExitCode.OK
    assert exit_code([examined(failed("x"))]) is ExitCode.LOCAL_ENVIRONMENT
    assert exit_code([examined(failed("x")), examined(wrong_setting("x"))]) is ExitCode.COMMAND_LINE
    assert exit_code([of_blame(FindingCause.MACHINE), of_blame(FindingCause.TARGETS)]) is ExitCode.ANALYSIS_FAILED
    assert exit_code([of_blame(FindingCause.MLCBUILD)]) is ExitCode.INTERNAL
    assert exit_code([of_blame(FindingCause.MLCBUILD), of_blame(FindingCause.MACHINE)]) is ExitCode.LOCAL_ENVIRONMENT


def test_what_programs_read(snapshot: Snapshot) -> None:
    found = [
        examined(warning("3 GB free", "make room", free_bytes=3_000_000_000)),
        examined(wrong_setting("no credentials"), part=REMOTE, name="credentials"),
    ]
    snapshot("doctor-json", json.dumps(document(found, exit_code(found)), indent=2) + "\n")


def test_a_healthy_workspace_and_disk(place: Path, snapshot: Snapshot, capsys: Capture) -> None:
    assert main(["doctor", "workspace", "disk"]) == 0
    out, err = capsys.readouterr()
    assert all(" · " in line for line in err.splitlines())  # how far it is, on a machine with much else to do
    # What this file system can do differs; all else is the same everywhere.
    out = re.sub(r"(abilities +).*", r"\1…", out)
    snapshot("doctor-healthy", at_eighty_columns(shown(out, place)))


def test_findings_of_a_cluster(snapshot: Snapshot) -> None:
    """As values: on real ones tests/execution/ray tries it."""
    settings = RaySettings(address="10.0.0.1:6379")
    plain = MachineResources(cpus=16, memory_bytes=64 << 30)
    nodes = [Node(identifier=str(number), name=f"n{number}", resources=plain) for number in range(3)]
    head = replace(nodes[0], name="head", resources=MachineResources(cpus=0))
    other = "mlcbuild: 0.1.0 1111111111111111 there, 0.1.0 2222222222222222 here"
    seen = [
        ProbedNode(node=head, unused="it has no cpus"),
        *(ProbedNode(node=node) for node in nodes[:2]),
        ProbedNode(node=nodes[2], differences=(other,)),
    ]
    part = Part(name="ray", subject=settings.address, checks=lambda: ())
    found = [
        examined(ray_cluster.sum_of(seen, settings, {}), part=part, name="nodes"),
        *(examined(row, part=part, name="node") for row in ray_cluster.rows(seen)),
        examined(ray_cluster.sum_of(seen[:1], settings, {}), part=part, name="nodes"),
        examined(ray_cluster.sum_of(seen[3:], settings, {}), part=part, name="nodes"),
        examined(ray_cluster.token({"RAY_AUTH_MODE": "disabled"}), part=part, name="token"),
        examined(ray_cluster.token({"RAY_AUTH_TOKEN_PATH": "/nonexistent/token"}), part=part, name="token"),
    ]
    snapshot("doctor-ray", "\n".join(line for each in found for line in finding_lines(each, Style(), COLUMNS)) + "\n")


def test_nothing_is_left_behind(place: Path, capsys: Capture) -> None:
    before = sorted(place.parent.rglob("*"))
    assert main(["doctor", "workspace", "disk"]) == 0
    assert sorted(place.parent.rglob("*")) == before


def test_outside_a_workspace(place: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["doctor", "workspace", "--output=json"]) == 0
    (check,) = json.loads(capsys.readouterr().out)["checks"]
    assert (check["verdict"], check["measured"]) == ("skipped", f"none at or above {tmp_path}")


def test_errors_in_a_workspace_have_their_places(place: Path, snapshot: Snapshot, capsys: Capture) -> None:
    (place / "BUILD.toml").write_text('[workspace]\nname = "example"\n\n[[tool]]\nnam = "y"\n')
    assert main(["doctor", "workspace"]) == 7
    snapshot("doctor-errors", at_eighty_columns(shown(capsys.readouterr().out, place)))


@pytest.mark.parametrize("parts", [("workspace",), ("workspace", "remote", "ray")])
def test_a_workspace_that_does_not_parse_is_answered_as_by_a_build(
    place: Path, capsys: Capture, parts: tuple[str, ...]
) -> None:
    (place / "BUILD.toml").write_text('[workspace]\nname = "example"\n\n[[command\n')
    assert main(["build", "//..."]) == 7
    capsys.readouterr()
    assert main(["doctor", *parts]) == 7
    assert "BUILD.toml:4:10: not valid TOML" in capsys.readouterr().out


def test_a_part_that_is_none(place: Path, capsys: Capture) -> None:
    assert main(["doctor", "dsik"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith('error: unknown part "dsik"\n')
    assert 'did you mean "disk"?' in err


def test_signing_alone_tells_why_there_is_nothing_to_try(
    place: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["doctor", "signing"]) == 0
    assert capsys.readouterr().out.startswith("signing\n  skipped  configured        none is configured\n")
    monkeypatch.setenv("MLCBUILD_REMOTE", "ftp://example.com")
    assert main(["doctor", "signing"]) == 2
    assert capsys.readouterr().out.startswith("signing\n  error    settings          MLCBUILD_REMOTE: ")
    assert main(["doctor", "signing", "remote"]) == 2
    assert capsys.readouterr().out.startswith("remote\n  error    settings          MLCBUILD_REMOTE: ")


def test_a_check_that_takes_its_time_is_spoken_of(
    place: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlcbuild.cli.doctor import parts
    from mlcbuild.doctor.check import Check

    def slow() -> Finding:
        time.sleep(2.5)
        return ok("at last")

    monkeypatch.setattr(parts, "machine_checks", lambda: (Check(name="patience", examine=slow),))
    assert main(["doctor", "machine"]) == 0
    out, err = capsys.readouterr()
    assert "ok       patience          at last" in out
    lines = err.splitlines()
    assert 1 <= len(lines) <= 3
    assert all(re.fullmatch(r"machine: patience · \d\.\d s", line) for line in lines)


@pytest.mark.parametrize(("color", "is_painted"), [("auto", False), ("always", True), ("never", False)])
def test_colour_is_for_terminals_and_on_request(
    place: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch, color: str, is_painted: bool
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert main(["--color", color, "doctor", "workspace"]) == 0
    assert ("\x1b[" in capsys.readouterr().out) is is_painted


def test_examining_is_ended_by_ctrl_c(place: Path, tmp_path: Path) -> None:
    """Even amid a server that never answers; it listens and accepts nobody."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        command = [sys.executable, "-m", "mlcbuild.cli.main", "doctor", "remote", "--remote"]
        process = subprocess.Popen(
            [*command, f"http://127.0.0.1:{silent.getsockname()[1]}"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
            # Who runs the tests in the background of a shell has this ignored.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )
        try:
            assert process.stdout is not None
            while "credentials" not in (line := process.stdout.readline()):
                assert line or process.poll() is None
            time.sleep(0.5)
            began = time.monotonic()
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=30)
        finally:
            process.kill()
            process.wait()
    assert time.monotonic() - began < 20
    assert process.returncode == 8
    assert "Traceback" not in err


def test_what_examines_imports_nothing_heavy() -> None:
    program = """
import sys
import mlcbuild.cli.commands.doctor
clients = {"tvm", "tvm_ffi", "ray", "boto3", "botocore", "grpc", "torch", "numpy", "asyncio", "cryptography"}
light = sorted(clients & set(sys.modules))
assert not any(name.startswith("mlcbuild.doctor") for name in sys.modules)
import mlcbuild.cli.doctor.output, mlcbuild.doctor.remote, mlcbuild.doctor.signing
from tests.cli.conftest import at_eighty_columns
heavy = sorted((clients - {"asyncio"}) & set(sys.modules))
print(light, heavy)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[] []"
