"""What a workspace remembers of its last build."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlcbuild.engine.executor import FileEntry
from mlcbuild.engine.json_cache import JsonCache
from mlcbuild.engine.last_build import LastBuild
from tests.engine.random_graphs import digest_of

KEY = digest_of("key")
OUTPUTS = (
    FileEntry(path="a b\n/ü", digest=digest_of("1")),
    FileEntry(path="run", digest=digest_of("22"), is_executable=True),
)


def remembered(path: Path) -> LastBuild:
    build = LastBuild(path)
    build.remember("//a:b Compile", "signature", KEY, OUTPUTS)
    build.remember_seconds("Compile", 4.0)
    build.save()
    return LastBuild(path)


def test_keys_results_and_seconds_come_back(tmp_path: Path) -> None:
    build = remembered(tmp_path / "state")
    assert build.key_for("//a:b Compile", "signature") == KEY
    assert build.outputs_for("//a:b Compile", KEY) == OUTPUTS
    assert build.seconds_by_mnemonic == {"Compile": 4.0}
    assert build.had_key("//a:b Compile", KEY)


def test_another_signature_or_key_finds_nothing(tmp_path: Path) -> None:
    build = remembered(tmp_path / "state")
    assert build.key_for("//a:b Compile", "other") is None
    assert build.outputs_for("//a:b Compile", digest_of("other")) is None
    assert build.key_for("//a:c Compile", "signature") is None


def test_new_seconds_count_half(tmp_path: Path) -> None:
    build = remembered(tmp_path / "state")
    build.remember_seconds("Compile", 8.0)
    assert build.seconds_by_mnemonic == {"Compile": 6.0}


def test_seconds_of_an_action_come_before_those_of_its_kind(tmp_path: Path) -> None:
    path = tmp_path / "state"
    build = remembered(path)
    build.remember_seconds("Compile", 8.0, identifier="//a:b Compile")
    build.remember_seconds("Compile", 2.0, identifier="never remembered")
    build.save()
    again = LastBuild(path)
    assert again.seconds_of("//a:b Compile", "Compile") == 8.0
    assert again.seconds_of("//a:c Compile", "Compile") == 4.0
    assert again.seconds_of("never remembered", "Compile") == 4.0
    assert again.seconds_of("//a:c Link", "Link") is None


def test_seconds_of_an_action_outlive_its_key(tmp_path: Path) -> None:
    path = tmp_path / "state"
    build = remembered(path)
    build.remember_seconds("Compile", 8.0, identifier="//a:b Compile")
    build.save()
    build = LastBuild(path)
    build.remember("//a:b Compile", "another signature", digest_of("another key"), OUTPUTS)
    build.remember_seconds("Compile", 4.0, identifier="//a:b Compile")
    build.save()
    again = LastBuild(path)
    assert again.seconds_of("//a:b Compile", "Compile") == 6.0
    assert again.outputs_for("//a:b Compile", digest_of("another key")) == OUTPUTS


def test_a_record_without_seconds_is_as_good_as_ever(tmp_path: Path) -> None:
    path = tmp_path / "state"
    remembered(path)
    assert LastBuild(path).key_for("//a:b Compile", "signature") == KEY
    assert LastBuild(path).seconds_of("//a:b Compile", "Compile") == 4.0


def test_a_result_of_many_files_is_left_to_the_action_cache(tmp_path: Path) -> None:
    build = LastBuild(tmp_path / "state")
    many = tuple(FileEntry(path=f"p{index}", digest=digest_of("1")) for index in range(100))
    build.remember("a", "signature", KEY, many)
    assert build.key_for("a", "signature") == KEY
    assert build.outputs_for("a", KEY) is None


@pytest.mark.parametrize("text", ["", "{", "[]", '{"kind":"last build 1","values":{"actions":[],"seconds":3}}', "\0"])
def test_a_damaged_file_is_an_empty_one(tmp_path: Path, text: str) -> None:
    path = tmp_path / "state"
    path.write_text(text)
    build = LastBuild(path)
    assert build.key_of("a") is None
    assert build.seconds_by_mnemonic == {}
    assert remembered(path).key_of("//a:b Compile") == KEY


@pytest.mark.parametrize(
    "record",
    [[], None, 3, ["signature"], ["signature", "xyz", 3, None], ["signature", KEY.hash, "3", None], "abcd"],
)
def test_a_damaged_record_is_unknown(tmp_path: Path, record: object) -> None:
    path = tmp_path / "state"
    remembered(path)
    cache = JsonCache(path, kind="last build 1")
    actions = cache.get("actions")
    actions["//a:b Compile"] = record
    cache.set("actions", actions)
    cache.save()
    build = LastBuild(path)
    assert build.key_for("//a:b Compile", "signature") is None
    assert build.outputs_for("//a:b Compile", KEY) is None
    assert not build.had_key("//a:b Compile", KEY)


@pytest.mark.parametrize("flat", [3, ["a"], ["a", KEY.hash, -1, False], ["a", None, 1, False]])
def test_damaged_outputs_are_unknown(tmp_path: Path, flat: object) -> None:
    path = tmp_path / "state"
    remembered(path)
    cache = JsonCache(path, kind="last build 1")
    actions = cache.get("actions")
    actions["//a:b Compile"][3] = flat
    cache.set("actions", actions)
    cache.save()
    assert LastBuild(path).outputs_for("//a:b Compile", KEY) is None


def test_a_larger_peak_counts_at_once_and_a_smaller_one_slowly(tmp_path: Path) -> None:
    last = LastBuild(tmp_path / "last")
    for peak in (100, 1000, 200, 0):
        last.remember_peak("Link", peak)
    last.save()
    assert dict(LastBuild(tmp_path / "last").peak_bytes_by_mnemonic) == {"Link": 960}
