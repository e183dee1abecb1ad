"""Inputs in the directory of an action: which of them it has written to."""

from __future__ import annotations

from pathlib import Path

from mlcbuild.cache.digest import DigestFunction
from mlcbuild.cache.disk import DiskStore
from mlcbuild.engine.action import ExecutionRequirements, StageCall
from mlcbuild.engine.executor import ExecutionRequest, FileEntry
from mlcbuild.execution.layout import LinkedBlob, changed, lay_out


def laid_out(folder: Path) -> tuple[LinkedBlob, ...]:
    store = DiskStore(folder / "store", DigestFunction.BLAKE3)
    digest = store.put_bytes(b"text")
    request = ExecutionRequest(
        identifier="//:a Stage",
        mnemonic="Stage",
        command=StageCall(function="a:run"),
        inputs=(FileEntry(path="in/text.txt", digest=digest),),
        outputs=("out/a",),
        environment=(),
        requirements=ExecutionRequirements(),
    )
    directory = folder / "action"
    directory.mkdir()
    return lay_out(request, directory, store).blobs


def test_an_input_that_an_action_writes_to_is_told(tmp_path: Path) -> None:
    (blob,) = laid_out(tmp_path)
    assert changed([blob]) == []
    blob.file.chmod(0o600)
    blob.file.write_bytes(b"other text")
    assert changed([blob]) == [blob]


def test_an_input_that_another_action_stores_again_is_not_written_to(tmp_path: Path) -> None:
    (blob,) = laid_out(tmp_path)
    again = blob.file.with_name("again")
    again.write_bytes(b"text")
    again.rename(blob.file)
    assert changed([blob]) == []
