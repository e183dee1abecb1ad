"""The incremental table: its changes fit the code, and its figures are what they say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.incremental_place import Build, Place
from benchmarks.incremental_rows import ROWS, Row, no_edit, only
from benchmarks.incremental_table import FORMS, Matrix, Measured, Table
from tests.compiler.tiny_models import write_config


def shapes(folder: Path) -> Path:
    """A folder of two small models of one family, whose longest products are worth many warps."""
    for name, width in (("one", 2560), ("other", 3072)):
        (folder / name).mkdir(parents=True)
        write_config(folder / name / "config.json", intermediate_size=width, max_position_embeddings=2048)
    return folder


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    folder = tmp_path_factory.mktemp("incremental")
    return Place(folder, ("one", "other"), shapes(folder / "shapes"))


def contents(place: Place) -> dict[Path, tuple[bytes, int]]:
    files = [path for folder in (place.code, place.root) for path in folder.rglob("*") if path.suffix != ".pyc"]
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in files if path.is_file()}


CHANGING = [row for row in ROWS if row.edit not in (None, no_edit)]


@pytest.mark.parametrize("row", CHANGING, ids=lambda row: row.name)
def test_a_row_changes_one_file_and_puts_it_back(place: Place, row: Row) -> None:
    before = contents(place)
    assert row.edit is not None
    row.edit(place)
    after = contents(place)
    place.undo()
    assert len([path for path, content in after.items() if before[path] != content]) == 1
    assert contents(place) == before


def test_words_that_are_not_there_are_told(place: Place) -> None:
    with pytest.raises(SystemExit, match="'no such words' is there 0 times"):
        place.exchange(place.root / "BUILD.toml", "no such words", "")


def built(seconds: float, **ran: int) -> Build:
    return Build(seconds=seconds, processor_seconds=2 * seconds, actions=8, ran=ran)


def test_a_row_knows_what_it_should_not_have_run() -> None:
    row = Row(name="row", change="a change", edit=None, only=only("Lower", "Link"))
    assert row.unexpected({"Lower": 1, "Link": 1}) == []
    assert row.unexpected({"Lower": 1, "Export": 1}) == ["Export ran", "Link did not run"]
    row = Row(name="row", change="a change", edit=None, never=only("CompileKernel"))
    assert row.unexpected({"CompileKernel": 3, "Lower": 1}) == ["CompileKernel ran"]


@pytest.fixture
def table() -> Table:
    row = Row(name="row", change="a change", edit=None, note="A note.")
    cold = (built(9.0, Export=1, CompileKernel=7), built(11.0, Export=1, CompileKernel=7))
    measured = Measured(
        row=row,
        builds=(built(0.5, CompileKernel=2, Link=1), built(4.0, CompileKernel=2, Link=1), built(0.9, Link=1)),
        cold=cold,
        unexpected=("CompileKernel ran",),
    )
    matrix = Matrix(
        cells={"one-cuda": built(10.0, Export=8), "one-cpu": built(6.0, Export=8)}, whole=built(4.0, Link=4)
    )
    return Table(models=("one",), rounds=3, cold={"one-cuda": cold}, rows=(measured,), matrix=matrix)


def test_shares_are_of_the_mean_cold_build_and_the_median_of_the_rounds(table: Table) -> None:
    lines = FORMS["markdown"](table).splitlines()
    assert "| `one-cuda` | 8 | 9.0, 11.0 | 18.0, 22.0 |" in lines
    assert (
        "| a change | 3 of 8 | 2 CompileKernel, Link | 0.9 | 9.0% | 9.0% | "
        "A note. **Not as it should be: CompileKernel ran.** |"
    ) in lines
    assert lines[-3:] == [
        "| sum | 16 | 16.0 | 32.0 |",
        "| all at once | 4 | 4.0 | 8.0 |",
        "| share of the sum | 25% | 25% | 25% |",
    ]


def test_the_forms_tell_the_same(table: Table) -> None:
    document = json.loads(FORMS["json"](table))
    assert document["rows"][0]["ran"] == {"CompileKernel": 2, "Link": 1}
    assert document["rows"][0]["share"] == 0.09
    assert document["rows"][0]["unexpected"] == ["CompileKernel ran"]
    assert document["matrix"]["whole"]["executed"] == 4
    text = FORMS["text"](table)
    assert "3 of    8     0.9 s    9.0%" in text
    assert "not as it should be: CompileKernel ran" in text


# What runs after changes of what is made. Those that change nothing of it are the business of
# tests/end_to_end/test_what_runs.py.

KERNEL = ("ScheduleKernel", "CompileKernel", "CompileDevice")


@pytest.fixture(scope="module")
def cold(place: Place) -> Build:
    build = place.build("one-cuda")
    assert build.executed == build.actions
    assert place.build_again("one-cuda").actions == build.actions
    return build


def ran_after(place: Place, name: str) -> dict[str, int]:
    (row,) = (row for row in ROWS if row.name == name)
    assert row.edit is not None
    try:
        row.edit(place)
        ran = place.build(row.target.format(*place.models)).ran
    finally:
        place.undo()
    assert row.unexpected(ran) == []
    return ran


@pytest.mark.slow
@pytest.mark.usefixtures("cold")
def test_a_pass_of_the_first_phase_that_makes_two_other_kernels(place: Place) -> None:
    once = ("Phase0", "Phase1", "Phase2", "Phase3", "Partition", "Lower", "Link")
    assert ran_after(place, "phase0") == dict.fromkeys(once, 1) | dict.fromkeys(KERNEL, 2)


@pytest.mark.slow
@pytest.mark.usefixtures("cold")
def test_a_pass_that_names_kernels_in_another_way_makes_none(place: Place) -> None:
    stages = ("Phase1", "Phase2", "Phase3", "Partition", "Lower", "Link")  # metadata have names that people read
    assert ran_after(place, "phase1-name") == dict.fromkeys(stages, 1)


@pytest.mark.slow
@pytest.mark.usefixtures("cold")
def test_a_pass_of_the_last_phase_before_kernels_that_makes_two_others(place: Place) -> None:
    once = ("Phase3", "Partition", "Lower", "Link")
    assert ran_after(place, "phase3") == dict.fromkeys(once, 1) | dict.fromkeys(KERNEL, 2)


@pytest.mark.slow
@pytest.mark.usefixtures("cold")
def test_a_pass_after_the_kernels_makes_none(place: Place) -> None:
    assert ran_after(place, "phase5") == {"Lower": 1, "Link": 1}


@pytest.mark.slow
def test_a_schedule_rule_has_those_kernels_compiled_that_it_makes_others_of(place: Place, cold: Build) -> None:
    ran = ran_after(place, "gpu-schedule")
    assert set(ran) == {*KERNEL, "Link"}
    assert ran["ScheduleKernel"] == cold.ran["ScheduleKernel"]
    assert 0 < ran["CompileKernel"] == ran["CompileDevice"] < cold.ran["CompileKernel"]


@pytest.mark.slow
def test_a_second_model_of_the_family_finds_the_kernels_that_it_shares(place: Place, cold: Build) -> None:
    ran = ran_after(place, "second-model")
    assert set(ran) == set(cold.ran)
    assert ran["ScheduleKernel"] == ran["CompileKernel"] == ran["CompileDevice"] < cold.ran["CompileKernel"] / 2
