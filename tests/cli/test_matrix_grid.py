"""Grids of cells as text: their columns fit a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from pathlib import Path

from mlcbuild.cli.matrix.cell import CellState, MatrixCell
from mlcbuild.cli.matrix.grid import grid_lines
from mlcbuild.cli.output.terminal import Style
from tests.workspace.world import load_world, write


def cells(folder: Path, **axes: Sequence[str]) -> list[MatrixCell]:
    """The cells of a matrix of a free axis each."""
    name = "-".join(f"{{{axis}}}" for axis in axes)
    matrix = ", ".join(f"{axis} = {list(values)!r}" for axis, values in axes.items())
    write(folder, {"x/BUILD.toml": f'[[thing]]\nname = "{name}"\nmatrix = {{ {matrix} }}\n'})
    loaded = load_world(folder, "//x:all")
    assert len(loaded.targets) == len(list(product(*axes.values())))
    return [
        MatrixCell(target=target, state=CellState.WOULD_RUN, would_run=1234, announces_more=True)
        for target in loaded.targets.values()
    ]


def lines(found: Sequence[MatrixCell], width: int = 80) -> list[str]:
    made = list(grid_lines(found, style=Style(), width=width))
    assert all(len(line) <= width for line in made)
    return made


def test_the_last_axis_that_fits_has_the_columns(tmp_path: Path) -> None:
    found = cells(tmp_path, few=["a", "b"], many=[f"value-{number}" for number in range(9)])
    assert lines(found)[1].split() == ["MANY", "a", "b"]
    assert lines(found, width=200)[1].split() == ["FEW", *(f"value-{number}" for number in range(9))]


def test_without_an_axis_that_fits_every_cell_has_a_line_in_the_order_of_the_matrix(tmp_path: Path) -> None:
    many = [f"value-{number}" for number in range(9, 0, -1)]
    made = lines(cells(tmp_path, one=many, two=many))
    assert made[1].split() == ["ONE", "TWO", "STATE"]
    assert [line.split()[:2] for line in made[2:4]] == [["value-9", "value-9"], ["value-9", "value-8"]]
    assert made[2].endswith("run 1,234+")


def test_long_values_are_cut_in_the_middle(tmp_path: Path) -> None:
    made = lines(cells(tmp_path, one=["x" * 90, "y" * 90], two=["z" * 90, "w" * 90]))
    assert made[2].startswith("xxx")
    assert "…" in made[2]


def test_labels_of_equal_names_are_shown_whole(tmp_path: Path) -> None:
    write(tmp_path, {"a/BUILD.toml": '[[model]]\nname = "m"\n', "b/BUILD.toml": '[[model]]\nname = "m"\n'})
    write(
        tmp_path,
        {
            "x/BUILD.toml": '[[library]]\nname = "{n}-{quantization}"\ninclude = [{ n = 1, model = "//a:m", '
            'quantization = "q0f16" }, { n = 2, model = "//b:m", quantization = "q0f16" }]\n'
        },
    )
    loaded = load_world(tmp_path, "//x:all")
    found = [MatrixCell(target=loaded.targets[label], state=CellState.BUILT) for label in loaded.requested]
    assert lines(found)[1].split() == ["N", "QUANTIZATION", "//a:m", "//b:m"]
    assert "·: no cell" in lines(found)
