"""Samples of texts: which pieces are taken, in which shard each is, and what another text changes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlcbuild.compiler.calibration.samples import Tokens, chosen, pieces_of, read_samples, sharded
from mlcbuild.compiler.manifest import read_manifest
from mlcbuild.compiler.stages import sample_texts
from mlcbuild.errors import StageError
from tests.compiler.packaged import byte_level_tokenizer, write_tokenizer

_PIECES = st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=4).map(tuple), unique=True, min_size=2, max_size=30)


@given(count=st.integers(1, 100), length=st.integers(2, 20))
def test_pieces_are_whole_and_lose_less_than_half_of_one(count: int, length: int) -> None:
    found = list(pieces_of(range(count), beginning=(-1,), length=length))
    assert all(piece[0] == -1 and len(piece) <= length for piece in found)
    kept = [token for piece in found for token in piece[1:]]
    assert kept == list(range(len(kept)))
    assert count - len(kept) < length / 2


@given(pieces=_PIECES, seed=st.integers(0, 3), shards=st.integers(1, 5))
def test_one_sample_more_changes_one_shard(pieces: list[Tokens], seed: int, shards: int) -> None:
    fewer, all_of_them = (
        sharded(chosen(pieces, samples=samples, seed=seed), shards=shards, seed=seed)
        for samples in (len(pieces) - 1, len(pieces))
    )
    changed = [number for number in range(shards) if fewer.get(number) != all_of_them.get(number)]
    assert len(changed) == 1
    assert sorted(sample for shard in all_of_them.values() for sample in shard.samples) == sorted(pieces)


def _run(folder: Path, texts: list[bytes], **more: int) -> list[Tokens]:
    tokenizer = write_tokenizer(folder / "tokenizer", byte_level_tokenizer(300))
    paths = []
    for number, text in enumerate(texts):
        paths.append(folder / f"{number}.txt")
        paths[-1].write_bytes(text)
    sizes = {"samples": 4, "tokens": 8, "seed": 0, "shard_count": 2} | more
    sample_texts.run(
        texts=paths, tokenizer=tokenizer, shards=folder / "shards", manifest=folder / "manifest.json", **sizes
    )
    files = [entry["file"] for entry in read_manifest((folder / "manifest.json").read_bytes())["shards"]]
    assert files == sorted(path.name for path in (folder / "shards").iterdir())
    return [sample for file in files for sample in read_samples(folder / "shards" / file).samples]


def test_texts_become_samples_of_token_ids(tmp_path: Path) -> None:
    text = bytes(range(97, 123)) + b"0123456789"
    found = _run(tmp_path, [text])
    assert len(found) == 4
    assert {len(sample) for sample in found} <= {8, 4}
    assert json.loads((tmp_path / "manifest.json").read_text())["version"] == 1


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ([b"abc"], "the texts make 1 different samples, and 4 are asked for"),
        ([b" \n"], "0.txt is empty: calibration takes a text"),
        ([b"abcdefgh" * 9, b"a\xff"], "1.txt is not UTF-8 text: byte 1"),
    ],
)
def test_texts_that_make_no_sample_are_refused(texts: list[bytes], message: str, tmp_path: Path) -> None:
    with pytest.raises(StageError, match=message):
        _run(tmp_path, texts)
