"""A damaged cache file counts as empty."""

from __future__ import annotations

from pathlib import Path

from mlcbuild.engine.json_cache import JsonCache


def test_what_was_saved_is_remembered(tmp_path: Path) -> None:
    cache = JsonCache(tmp_path / "state" / "cache", kind="test 1")
    cache.set("key", ["value", 1, None])
    cache.save()
    assert JsonCache(tmp_path / "state" / "cache", kind="test 1").get("key") == ["value", 1, None]
    assert JsonCache(tmp_path / "state" / "cache", kind="test 2").get("key") is None


def test_no_bit_of_the_file_can_change_unnoticed(tmp_path: Path) -> None:
    path = tmp_path / "cache"
    cache = JsonCache(path, kind="test")
    cache.set("key", {"out/o1": 12})
    cache.save()
    whole = path.read_bytes()
    for place in range(len(whole)):
        for bit in range(8):
            damaged = bytearray(whole)
            damaged[place] ^= 1 << bit
            path.write_bytes(damaged)
            assert JsonCache(path, kind="test").get("key") is None, (place, bit)
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        assert JsonCache(path, kind="test").get("key") is None, size
