"""Fetches as actions: with the network, in a worker, through the executor."""

from __future__ import annotations

import hashlib
import queue
from pathlib import Path

from mlcbuild.cache.digest import DigestFunction
from mlcbuild.cache.disk import DiskStore
from mlcbuild.engine.action import ExecutionRequirements, StageCall
from mlcbuild.engine.executor import ExecutionOutcome, ExecutionRequest, OutcomeKind
from mlcbuild.execution.local import LocalExecutor


def run(directory: Path, *, sha256: str, path: Path) -> tuple[ExecutionOutcome, DiskStore]:
    store = DiskStore(directory / "cache", DigestFunction.BLAKE3)
    executor = LocalExecutor(store, jobs=1, scratch=directory / "scratch")
    outcomes: queue.Queue[ExecutionOutcome] = queue.Queue()
    executor.start(outcomes.put)
    request = ExecutionRequest(
        identifier="//models:weights Fetch",
        mnemonic="Fetch",
        command=StageCall(
            function="mlcbuild.execution.fetch.local:run",
            outputs=(("file", "weights.gguf"),),
            parameters=(("sha256", sha256), ("name", "weights.gguf")),
        ),
        inputs=(),
        outputs=("weights.gguf",),
        environment=(),
        requirements=ExecutionRequirements(network=True, execution_hints=(("path", str(path)),)),
    )
    executor.submit(request)
    outcome = outcomes.get(timeout=60)
    executor.close()
    return outcome, store


def test_a_fetch_stores_the_file(tmp_path: Path) -> None:
    (tmp_path / "w").write_bytes(b"weights")
    outcome, store = run(tmp_path, sha256=hashlib.sha256(b"weights").hexdigest(), path=tmp_path / "w")
    assert [store.read(entry.digest) for entry in outcome.outputs] == [b"weights"]


def test_a_wrong_pin_fails_the_action_without_a_traceback(tmp_path: Path) -> None:
    (tmp_path / "w").write_bytes(b"other")
    outcome, _ = run(tmp_path, sha256=hashlib.sha256(b"weights").hexdigest(), path=tmp_path / "w")
    assert outcome.kind is OutcomeKind.FAILED
    assert "mlcbuild fetch --update" in outcome.message
    assert b"Traceback" not in outcome.log
