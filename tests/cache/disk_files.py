"""Results, and the files of a disk store, for tests that look at or damage them."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from pathlib import Path

from mlcbuild.cache import reapi
from mlcbuild.cache.digest import Digest, DigestFunction
from mlcbuild.cache.disk import DiskStore

BLAKE3 = DigestFunction.BLAKE3


KEY = BLAKE3.of_bytes(b"an encoded action")


def result_of(digest: Digest, worker: str = "w") -> reapi.ActionResult:
    return reapi.ActionResult(
        output_files=(reapi.OutputFile(path="out", digest=digest),),
        execution_metadata=reapi.ExecutedActionMetadata(worker=worker),
    )


def blob_path(store: DiskStore, digest: Digest) -> Path:
    return store.root / "v1" / store.function.value / "cas" / digest.hash[:2] / digest.hash


def files_in(store: DiskStore, folder: str) -> list[str]:
    path = store.root / "v1" / store.function.value / folder
    return sorted(file.name for file in path.rglob("*") if file.is_file()) if path.exists() else []


def damage(path: Path, data: bytes) -> None:
    path.chmod(0o644)
    path.write_bytes(data)
    path.chmod(0o444)


def run_python(script: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> str:
    output, complaints = process.communicate(timeout=120)
    assert process.returncode == 0, complaints
    return output


def put_elsewise(path: Path, kind: str) -> None:
    """Put something in a file's place that is no file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir() and not path.is_symlink():
        return  # It is there still.
    path.unlink(missing_ok=True)
    match kind:
        case "folder":
            path.mkdir()
        case "full folder":
            (path / "deep").mkdir(parents=True)
            (path / "deep/file").write_text("x")
        case "pipe":
            os.mkfifo(path)
        case "socket":
            with contextlib.chdir(path.parent), socket.socket(socket.AF_UNIX) as listener:
                listener.bind(path.name)
        case "link to a folder":
            path.symlink_to("/usr")
        case "link to itself":
            path.symlink_to(path.name)
        case "dangling link":
            path.symlink_to("nothing")
