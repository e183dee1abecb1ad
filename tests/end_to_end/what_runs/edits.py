"""Single changes of a place: of its files, of mlcbuild's code, of tools, flags and variables."""

from __future__ import annotations

import re
import shutil
from importlib import metadata
from pathlib import Path

from tests.end_to_end.what_runs.place import PROJECT, Place
from tests.end_to_end.what_runs.rows import Edit


def build_file(old: str, new: str) -> Edit:
    return lambda place: place.exchange(place.root / "BUILD.toml", old, new)


def appended(path: str, text: str) -> Edit:
    """A line more in a file of the workspace."""

    def edit(place: Place) -> None:
        file = place.root / path
        place.write(file, file.read_bytes() + text.encode())

    return edit


def code(module: str, text: str = "\n_ONE_CONSTANT_MORE = 1\n") -> Edit:
    """Text behind a module of mlcbuild's own."""

    def edit(place: Place) -> None:
        file = place.code / "mlcbuild" / f"{module}.py"
        place.write(file, file.read_bytes() + text.encode())

    return edit


def distribution(name: str) -> Edit:
    """An installed distribution of another content, as far as its RECORD says."""

    def edit(place: Place) -> None:
        found = Path(str(metadata.distribution(name)._path))  # type: ignore[attr-defined]
        copy = place.site / found.name
        shutil.copytree(found, copy)
        with (copy / "RECORD").open("a") as record:
            record.write("one_file_more.py,sha256=47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU,0\n")

    return edit


def argument(*words: str) -> Edit:
    return lambda place: place.arguments.extend(words)


def variable(name: str, value: str) -> Edit:
    return lambda place: place.environment.update({name: value})


def example_of(page: str) -> Edit:
    """What a page of docs/ adds: each block whose first line is a comment with a path is that file."""

    def edit(place: Place) -> None:
        text = (PROJECT / "docs" / page).read_text(encoding="utf-8")
        for block in re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
            first, _, content = block.partition("\n")
            path = first.removeprefix("# ").removeprefix("mlcbuild/")
            place.write(place.code / "mlcbuild" / path, content.encode())

    return edit


def above(path: str, text: str) -> Edit:
    """Lines in front of the first function of a module of mlcbuild's own."""

    def edit(place: Place) -> None:
        before = (place.code / path).read_text()
        first = before.index("\n@triton.jit")
        place.write(place.code / path, f"{before[:first]}{text}{before[first:]}".encode())

    return edit


def in_code(path: str, old: str, new: str) -> Edit:
    return lambda place: place.exchange(place.code / path, old, new)
