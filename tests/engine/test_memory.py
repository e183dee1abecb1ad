"""What is remembered between builds is whole, or is not there."""

from __future__ import annotations

from pathlib import Path

from mlcbuild.engine.memory import JsonMemory


def test_what_was_saved_is_remembered(tmp_path: Path) -> None:
    memory = JsonMemory(tmp_path / "state" / "memory", kind="test 1")
    memory.set("key", ["value", 1, None])
    memory.save()
    assert JsonMemory(tmp_path / "state" / "memory", kind="test 1").get("key") == ["value", 1, None]
    assert JsonMemory(tmp_path / "state" / "memory", kind="test 2").get("key") is None


def test_no_bit_of_the_file_can_change_unnoticed(tmp_path: Path) -> None:
    path = tmp_path / "memory"
    memory = JsonMemory(path, kind="test")
    memory.set("key", {"out/o1": 12})
    memory.save()
    whole = path.read_bytes()
    for place in range(len(whole)):
        for bit in range(8):
            damaged = bytearray(whole)
            damaged[place] ^= 1 << bit
            path.write_bytes(damaged)
            assert JsonMemory(path, kind="test").get("key") is None, (place, bit)
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        assert JsonMemory(path, kind="test").get("key") is None, size
