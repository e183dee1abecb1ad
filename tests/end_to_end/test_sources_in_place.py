"""Large sources are read where they lie, without a copy in the store, and nothing is kept of one that changes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import save_file

from mlcbuild.cache.digest import DigestFunction
from mlcbuild.engine import input_fetcher
from mlcbuild.execution import layout
from tests.compiler.packaged import byte_level_tokenizer
from tests.compiler.tiny_models import TINY, checkpoint
from tests.end_to_end.world import HEAD, World

_TABLES = """
[[model]]
name = "model"
source = "checkpoint"

[[quantized_weights]]
name = "weights"
model = ":model"
quantization = "q4f32_1"
"""


@pytest.fixture
def source(world: World) -> Path:
    """The large file of a workspace, which has been there for a while."""
    path = world.write("checkpoint/model.safetensors", b"")
    save_file(dict(checkpoint()), path)
    world.write("checkpoint/config.json", json.dumps(TINY))
    world.write("checkpoint/tokenizer.json", json.dumps(byte_level_tokenizer(300)))
    world.write("BUILD.toml", HEAD + _TABLES)
    return path


def _shard(world: World) -> bytes:
    return (world.output("weights") / "params_shard_0.bin").read_bytes()


def _is_stored(world: World, source: Path) -> bool:
    digest = DigestFunction.BLAKE3.of_file(source).hash
    return (world.store / "cas" / digest[:2] / digest).exists()


@pytest.mark.slow
def test_a_large_source_is_not_copied_and_nothing_is_kept_of_one_that_changes(
    world: World, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert world.build(":weights").code == 0
    assert _is_stored(world, source)
    expected = _shard(world)

    monkeypatch.setattr(input_fetcher, "_IN_PLACE_FROM_BYTES", source.stat().st_size)
    original, changed = source.read_bytes(), bytearray(source.read_bytes())
    changed[-1] ^= 1
    source.write_bytes(changed)
    lay_out = layout.lay_out

    def changing(request: Any, *arguments: Any) -> Any:
        laid_out = lay_out(request, *arguments)
        if request.mnemonic == "ImportWeights":
            assert [blob.file for blob in laid_out.blobs if blob.is_source] == [source]
            source.write_bytes(original)
        return laid_out

    monkeypatch.setattr("mlcbuild.execution.local.lay_out", changing)
    done = world.build(":weights")
    assert done.code == 1
    assert "the source file 'checkpoint/model.safetensors' changed during the build" in done.err
    assert "wrote to its input" not in done.err

    monkeypatch.setattr("mlcbuild.execution.local.lay_out", lay_out)
    source.write_bytes(changed)
    done = world.build(":weights")
    assert done.code == 0, done.err
    assert _shard(world) != expected
    assert not _is_stored(world, source)
    assert world.verify()

    source.write_bytes(original)
    assert world.build(":weights").code == 0
    assert _shard(world) == expected
