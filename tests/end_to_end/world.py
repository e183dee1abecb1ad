"""A workspace and a disk cache of its own, driven by the command line; and a verifier that believes no cache."""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from mlcbuild.cache import integrity
from mlcbuild.cache.digest import Digest, DigestFunction
from mlcbuild.cache.disk import DiskStore
from mlcbuild.cache.reapi import ActionResult
from mlcbuild.cache.store import BlobMissingError
from mlcbuild.cli.main import main
from mlcbuild.engine.action_results import blobs_of, outputs_of
from tests.durations import without_times

PROJECT = Path(__file__).parents[2]
HEAD = '[workspace]\nname = "example"\n\n[[tool]]\nname = "sh"\npath = "/bin/sh"\n'
PATIENCE_SECONDS = 60.0


@dataclass(frozen=True, kw_only=True)
class Done:
    """A command that ended: its exit code, and what it wrote, without durations."""

    code: int
    out: str
    err: str
    report: dict[str, Any] = field(default_factory=dict)

    @property
    def actions(self) -> dict[str, int]:
        """The counts of the build report that are not zero, without the total."""
        counts: dict[str, int] = self.report["actions"]
        return {name: count for name, count in counts.items() if count and name != "total"}


class World:
    """A workspace in `root` with a store in `cache`; nothing of the user's own is seen."""

    def __init__(self, folder: Path, *, name: str = "workspace", cache: Path | None = None) -> None:
        self.folder = folder
        self.root = folder / name
        self.cache = cache or folder / "cache"
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder / "home"),
            "XDG_CACHE_HOME": str(self.cache),
            "LC_ALL": "C.UTF-8",
        }
        self.root.mkdir(parents=True, exist_ok=True)

    def leave_sandbox(self) -> None:
        """For commands that write outside of their directories, so that a test can count their runs."""
        self.environment["MLCBUILD_SANDBOX"] = "0"

    def write(self, path: str, content: str | bytes, *, executable: bool = False) -> Path:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)
        if executable:
            file.chmod(0o755)
        return file

    def commands(self, *tables: str, head: str = HEAD) -> None:
        """Write the root's BUILD.toml."""
        self.write("BUILD.toml", "\n".join([head, *tables]))

    def output(self, path: str) -> Path:
        return self.root / "mlcbuild-out/default" / path

    @property
    def store(self) -> Path:
        return self.cache / "mlcbuild/v1/blake3"

    @property
    def scratch(self) -> list[str]:
        """What lies where actions run, but for what stages import again."""
        return [path.name for path in (self.root / ".mlcbuild/scratch").iterdir() if path.name != "bytecode"]

    # Commands

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "mlcbuild.cli.main", *arguments]

    def mlcbuild(self, *arguments: str, **environment: str) -> Done:
        """Run a command to its end, in the workspace and in this process."""
        out, err = io.StringIO(), io.StringIO()
        with (
            mock.patch.dict(os.environ, {**self.environment, **environment}, clear=True),
            contextlib.chdir(self.root),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            code = main(arguments)
        return Done(code=code, out=out.getvalue(), err=without_times(err.getvalue()))

    def process(self, *arguments: str, **environment: str) -> Done:
        """Run a command to its end, in the workspace and in a process of its own."""
        done = subprocess.run(
            self.command(*arguments),
            cwd=self.root,
            env={**self.environment, **environment},
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_SECONDS * 3,
        )
        return Done(code=done.returncode, out=done.stdout, err=without_times(done.stderr))

    def build(self, *arguments: str, **environment: str) -> Done:
        """Build one action after the other, with a report; all of the root package where nothing else is said."""
        report = self.folder / "report.json"
        report.unlink(missing_ok=True)
        wanted = arguments if any(":" in argument for argument in arguments) else (*arguments, ":all")
        done = self.mlcbuild("build", "--jobs", "1", "--build-report", str(report), *wanted, **environment)
        document = json.loads(report.read_text()) if report.exists() else {}
        return Done(code=done.code, out=done.out, err=done.err, report=document)

    def start(self, *arguments: str, env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        """A command under way, in a session of its own."""
        return subprocess.Popen(
            self.command(*arguments),
            cwd=self.root,
            env={**self.environment, **(env or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def verify(self, *, complete: bool = True) -> int:
        """Check every byte of the store; answers how many results it holds.

        `complete = False` allows for blobs that a test took away and no build has asked for since.
        """
        return verify_store(self.cache / "mlcbuild", complete=complete)


def command(
    name: str, script: str, *, inputs: Sequence[str] = (), outputs: Sequence[str] = ("out",), more: str = ""
) -> str:
    """A `command` table that runs a shell script: `$1 …` are the outputs, then the inputs."""
    arguments = ["-ec", script, name, "{outputs}", *(["{inputs}"] if inputs else [])]
    return (
        f'[[command]]\nname = {json.dumps(name)}\ntool = ":sh"\n'
        f"inputs = {json.dumps(list(inputs), ensure_ascii=False)}\n"
        f"outputs = {json.dumps(list(outputs), ensure_ascii=False)}\n"
        f"arguments = {json.dumps(arguments, ensure_ascii=False)}\n{more}\n"
    )


def until_there(file: Path) -> str:
    """A shell command that ends when a file is there, which even a command in a sandbox may see; `is_awaited` tells
    that it has begun.
    """
    return f"/bin/sh -c 'until [ -e \"$0\" ]; do sleep 0.02; done' {file}"


def is_awaited(file: Path) -> bool:
    return any(arguments[-1] == str(file) for _, arguments in _command_lines())


def long_sleep(seconds: int) -> str:
    """A `sleep` that no other test runs, for about so long."""
    return f"sleep {seconds}.{random.randrange(10**9):09d}"


def sleeping(sleep: str) -> list[int]:
    """The processes that run it, whoever started them."""
    return [pid for pid, arguments in _command_lines() if " ".join(arguments) == sleep]


def verify_store(root: Path, *, complete: bool = True) -> int:
    """Hash every blob again, decode every result and ask for all that it names. Answers the number of results.

    The store's own checksums are checked too, but not believed. `complete = False` allows for damage that a test did
    and no build has met since: the store must refuse to serve it.
    """
    function = DigestFunction.BLAKE3
    base = root / "v1" / function.value
    for path in sorted((base / "cas").glob("*/*")):
        assert path.parent.name == path.name[:2]
        content = path.read_bytes()
        if not complete and function.of_bytes(content).hash != path.name:
            with pytest.raises(BlobMissingError):
                DiskStore(root, function).read(Digest(path.name, len(content)))
            continue
        assert function.of_bytes(content).hash == path.name, f"blob {path.name} holds something else"
        with path.open("rb") as stream:
            recorded = integrity.read_recorded(stream.fileno(), base / "checksums" / path.name[:2] / path.name)
        assert recorded in (None, integrity.checksum_of_bytes(content))
        assert path.stat().st_mode & 0o777 == 0o444
    store = DiskStore(root, function)
    count = 0
    for path in sorted((base / "ac").glob("*/*")):
        assert path.parent.name == path.name[:2]
        data = path.read_bytes()
        body, checksum = data[: -integrity.CHECKSUM_BYTES], data[-integrity.CHECKSUM_BYTES :]
        if not complete and integrity.checksum_of_bytes(body) != checksum:
            assert DiskStore(root, function).get(Digest(path.name, 0)) is None
            continue
        assert integrity.checksum_of_bytes(body) == checksum, f"result {path.name} is torn"
        result = ActionResult.decode(body)
        assert result.exit_code == 0, f"result {path.name} is a failure"
        count += 1
        if complete:
            try:
                needed = [*blobs_of(result), *(entry.digest for entry in outputs_of(result, store))]
            except BlobMissingError as error:
                raise AssertionError(f"result {path.name} names a Tree that is not there") from error
            assert store.missing(needed) == (), f"result {path.name} names blobs that are not there"
    assert list((base / "tmp").iterdir()) == [], "half-written files were left"
    return count


def results_naming(root: Path, digest: Digest) -> list[Path]:
    """The results in a store that name a blob."""
    function = DigestFunction.BLAKE3
    store = DiskStore(root, function)
    found = []
    for path in sorted((root / "v1" / function.value / "ac").glob("*/*")):
        result = ActionResult.decode(path.read_bytes()[: -integrity.CHECKSUM_BYTES])
        if digest in [*blobs_of(result), *(entry.digest for entry in outputs_of(result, store))]:
            found.append(path)
    return found


def blob_of(world: World, content: bytes) -> Path:
    """Where a store keeps these bytes."""
    name = DigestFunction.BLAKE3.of_bytes(content).hash
    return world.store / "cas" / name[:2] / name


def wait_until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"never came: {what}"
        time.sleep(0.01)


def processes_of_session(session: int) -> list[int]:
    """The processes of a session that still run."""
    return [pid for pid, fields in _processes() if int(fields[3]) == session and fields[0] != "Z"]


def processes_with(variable: str) -> list[int]:
    """The processes that have `NAME=VALUE` in their environment."""
    found = []
    for pid, fields in _processes():
        try:
            variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if variable.encode() in variables and fields[0] != "Z":
            found.append(pid)
    return found


def children_of(parent: int) -> list[int]:
    return [pid for pid, fields in _processes() if int(fields[1]) == parent and fields[0] != "Z"]


def descendants_of(parent: int) -> list[int]:
    found = children_of(parent)
    for pid in found:
        found += children_of(pid)
    return found


def _command_lines() -> list[tuple[int, list[str]]]:
    """Process ids, and arguments from the program's name on."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                text = (entry / "cmdline").read_bytes().decode(errors="replace")
                found.append((int(entry.name), text.removesuffix("\0").split("\0")))
    return found


def _processes() -> list[tuple[int, list[str]]]:
    """Process ids, and what /proc/PID/stat says after the name: state, parent, group, session, …"""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                found.append((int(entry.name), (entry / "stat").read_text().rpartition(")")[2].split()))
            except OSError:
                continue
    return found
