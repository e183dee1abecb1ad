"""`include`: further values for cells, and further cells."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.workspace.test_matrix import library
from tests.workspace.world import ROOT, errors_of, load_world, toml, write

NAME = 'name = "{model}-{quantization}-{platform}"'
MATRIX = 'matrix = { model = [":a", ":b"], quantization = ["q0f16", "q0f32"], platform = ["//platforms:gpu"] }'


def cells(root: Path, *lines: str) -> dict[str, Any]:
    """The targets of a matrix by name."""
    loaded = load_world(write(root, library(*lines)), "//models/...")
    return {target.label.name: target for target in loaded.targets.values() if target.axes}


def include(*entries: dict[str, Any]) -> str:
    return f"include = {toml(list(entries))}"


def test_an_entry_adds_values_to_the_cells_that_have_its_axes(tmp_path: Path) -> None:
    found = cells(tmp_path, NAME, MATRIX, 'opt = "O1"', include({"model": ":a", "opt": "O3"}))
    assert {name: target.string("opt") for name, target in found.items()} == {
        "a-q0f16-gpu": "O3",
        "a-q0f32-gpu": "O3",
        "b-q0f16-gpu": "O1",
        "b-q0f32-gpu": "O1",
    }
    assert found["a-q0f16-gpu"].axes == ("model", "quantization", "platform")
    assert found["a-q0f16-gpu"].cell["opt"] == "O3"
    assert found["a-q0f16-gpu"].location_of("opt").line == 9


def test_later_entries_replace_what_earlier_ones_added_and_no_axis(tmp_path: Path) -> None:
    entries = include({"tier": "slow"}, {"model": ":a", "tier": "fast"}, {"quantization": "q0f32", "tier": "never"})
    found = cells(tmp_path, NAME, MATRIX, 'tags = ["{tier}"]', entries)
    assert {name: target.tags for name, target in found.items()} == {
        "a-q0f16-gpu": ("fast",),
        "a-q0f32-gpu": ("never",),
        "b-q0f16-gpu": ("slow",),
        "b-q0f32-gpu": ("never",),
    }


def test_an_entry_that_matches_no_cell_is_a_cell_to_which_other_entries_add_nothing(tmp_path: Path) -> None:
    cell = {"model": ":a", "quantization": "q4f16_1", "platform": "//platforms:cpu"}
    found = cells(tmp_path, NAME, MATRIX, include({**cell, "opt": "O0"}, {"model": ":a", "opt": "O3"}))
    assert len(found) == 5
    assert found["a-q4f16_1-cpu"].string("opt") == "O0"
    assert found["a-q4f16_1-cpu"].cell_number == 4


def test_include_adds_back_what_exclude_left_out(tmp_path: Path) -> None:
    cell = {"model": ":b", "quantization": "q0f32", "platform": "//platforms:gpu"}
    found = cells(tmp_path, NAME, MATRIX, 'exclude = [{ model = ":b" }]', include(cell))
    assert sorted(found) == ["a-q0f16-gpu", "a-q0f32-gpu", "b-q0f32-gpu"]


def test_a_matrix_may_be_a_list_of_cells(tmp_path: Path) -> None:
    entries = include(
        {"model": ":a", "quantization": "q0f16", "platform": "//platforms:gpu"},
        {"model": ":b", "quantization": "q0f32", "platform": "//platforms:cpu", "opt": "O0"},
    )
    found = cells(tmp_path, NAME, entries)
    assert sorted(found) == ["a-q0f16-gpu", "b-q0f32-cpu"]
    assert found["b-q0f32-cpu"].axes == ("model", "quantization", "platform")


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("include = 1", '8:11: "include" must be a list of tables, not the integer 1, in //models:'),
        ("include = []", '8:11: "include" must be a list of tables, not an empty one, in //models:'),
        ("include = [{}]", '8:12: "include" must contain tables with values, not an empty one, in //models:'),
        (
            include({"model": ":a", "op": "O3"}),
            '8:29: value "op" of //models:{model}-{quantization}-{platform} is not an attribute of library, '
            'and no placeholder {op} uses it\n  did you mean "opt"?',
        ),
        (include({"model": ":a", "tags": ["x"]}), '8:29: "tags" cannot be an axis of the matrix of'),
        (
            include({"model": ":a", "quantization": "q4f16_1"}),
            '8:12: this entry of "include" of //models:{model}-{quantization}-{platform} matches no cell\n'
            "  to add a cell, give it a value for platform too",
        ),
        (
            include({"model": ":a", "quantization": "q0f16"}),
            '8:12: this entry of "include" of //models:{model}-{quantization}-{platform} adds nothing: '
            "its cell is there",
        ),
        (include({"model": ":a", "opt": "O9"}), '8:37: unknown opt "O9" in //models:'),
    ],
)
def test_mistakes_are_told_with_their_place(tmp_path: Path, written: str, message: str) -> None:
    write(tmp_path, library(NAME, MATRIX, written))
    assert errors_of(tmp_path, "//models/...").startswith(f"models/BUILD.toml:{message}")


def test_a_placeholder_that_only_some_cells_have_is_told(tmp_path: Path) -> None:
    write(tmp_path, library(NAME, MATRIX, 'notes = { tier = "{tier}" }', include({"model": ":a", "tier": "fast"})))
    assert 'unknown placeholder "{tier}" in "notes"' in errors_of(tmp_path, "//models/...")


def test_an_entry_sets_the_platforms_of_its_cells_in_place_of_those_of_the_table(tmp_path: Path) -> None:
    entries = include(
        {"model": ":a", "compatible_with": ["llvm"]}, {"quantization": "q0f32", "compatible_with": ["cuda"]}
    )
    found = cells(tmp_path, NAME, MATRIX, 'compatible_with = ["cuda", "llvm"]', entries)
    assert {name: list(map(str, target.compatible_with)) for name, target in found.items()} == {
        "a-q0f16-gpu": ["llvm"],
        "a-q0f32-gpu": ["cuda"],
        "b-q0f16-gpu": ["cuda", "llvm"],
        "b-q0f32-gpu": ["cuda"],
    }
    assert "compatible_with" not in found["a-q0f16-gpu"].cell
    assert found["a-q0f16-gpu"].location_of("compatible_with").line == 9
    write(tmp_path, library(NAME, MATRIX, include({"model": ":a", "compatible_with": ["cudo"]})))
    assert 'unknown kind of platform "cudo" in "compatible_with"' in errors_of(tmp_path, "//models/...")


def test_platforms_of_compatible_with_are_labels_or_kinds(tmp_path: Path) -> None:
    table = '[[thing]]\nname = "t"\ncompatible_with = ["cuda", "//platforms:cpu"]\n'
    files = {"BUILD.toml": ROOT + table, "platforms/BUILD.toml": '[[platform]]\nname = "cpu"\nkind = "llvm"\n'}
    loaded = load_world(write(tmp_path, files), "//:t")
    (target,) = (found for found in loaded.targets.values() if found.rule == "thing")
    assert list(map(str, target.compatible_with)) == ["cuda", "//platforms:cpu"]
    assert loaded.named == frozenset({target.label})
    assert load_world(tmp_path, "//...").named == frozenset()


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ('["cudo"]', '5:20: unknown kind of platform "cudo" in "compatible_with" of //:t\n  known: llvm, cuda'),
        ('["//:t"]', '5:20: //:t is a thing, which cannot be the "compatible_with" of //:t'),
        ('[":gone"]', '5:20: no target //:gone, the "compatible_with" of //:t'),
        ("[]", '5:19: "compatible_with" in //:t must not be empty'),
        ('"cuda"', '5:19: "compatible_with" must be a list of strings, not the string "cuda", in //:t'),
    ],
)
def test_mistakes_in_compatible_with_are_told(tmp_path: Path, value: str, message: str) -> None:
    write(tmp_path, {"BUILD.toml": f'{ROOT}[[thing]]\nname = "t"\ncompatible_with = {value}\n'})
    assert errors_of(tmp_path).startswith(f"BUILD.toml:{message}")
