"""From wheels to an environment: where files lie, and wheels that make none."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from mlcbuild.compiler.stages.unpack_environment import run
from mlcbuild.errors import StageError
from tests.small_wheels import write_wheel

OTHER_PYTHON = f"cp3{sys.version_info.minor + 1}"


class Unpacking:
    """The wheels of a test, named as the rule names them, and the environment that they make."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = folder / "environment"
        self.environment.mkdir()
        self.wheels: list[Path] = []
        self.locked: dict[str, str] = {}

    def lock(self, wheel: tuple[Path, str], name: str, version: str) -> None:
        file = wheel[0].rename(self.folder / f"{name}-{version}.whl")
        self.wheels.append(file)
        self.locked[name] = version

    def run(self, accepted: Sequence[str] = (), without: Sequence[str] = ()) -> dict[str, str]:
        """The files of the environment without metadata, and what they hold."""
        contents = self.folder / "environment.json"
        run(
            wheels=tuple(self.wheels),
            environment=self.environment,
            contents=contents,
            locked=self.locked,
            accepted=accepted,
            without=without,
        )
        return {
            path.relative_to(self.environment).as_posix(): path.read_text()
            for path in sorted(self.environment.rglob("*"))
            if path.is_file() and ".dist-info" not in path.as_posix()
        }

    def refusal(self, accepted: Sequence[str] = ()) -> str:
        with pytest.raises(StageError) as raised:
            self.run(accepted)
        assert list(self.environment.iterdir()) == [], "nothing is unpacked of wheels that do not fit"
        return str(raised.value)


@pytest.fixture
def unpacking(tmp_path: Path) -> Unpacking:
    return Unpacking(tmp_path)


def test_each_kind_of_data_has_its_place(unpacking: Unpacking, tmp_path: Path) -> None:
    data = {
        "purelib/a.py": "1",
        "platlib/b/c.py": "2",
        "scripts/tool": "#!python",
        "data/share/d": "3",
        "headers/e.h": "4",
    }
    unpacking.lock(write_wheel(tmp_path, "one", "1.0", {"one/__init__.py": "0"}, data=data), "one", "1.0")
    assert unpacking.run() == {
        "a.py": "1",
        "b/c.py": "2",
        "bin/tool": "#!python",
        "include/e.h": "4",
        "one/__init__.py": "0",
        "share/d": "3",
    }


def test_programs_stay_executable_and_libraries_are_not(unpacking: Unpacking, tmp_path: Path) -> None:
    files = {"one/compile": "program", "one/lib.so": "library", "one/lib.so.1.2": "library", "one/text": "text"}
    wheel = write_wheel(tmp_path, "one", "1.0", files, executable=("one/compile", "one/lib.so", "one/lib.so.1.2"))
    unpacking.lock(wheel, "one", "1.0")
    unpacking.run()
    modes = {path.name: path.stat().st_mode & 0o111 for path in (unpacking.environment / "one").iterdir()}
    assert modes == {"compile": 0o111, "lib.so": 0, "lib.so.1.2": 0, "text": 0}


def test_the_contents_name_versions_and_licences(unpacking: Unpacking, tmp_path: Path) -> None:
    old = "License: Some\n        lines of it\nClassifier: License :: OSI Approved :: MIT License\n"
    unpacking.lock(write_wheel(tmp_path, "Two.Words", "2", metadata=old), "two-words", "2")
    unpacking.run()
    assert json.loads((tmp_path / "environment.json").read_text())["distributions"] == [
        {"name": "two-words", "version": "2", "license": "Some"}
    ]


def test_two_wheels_may_have_the_same_file_and_not_two_files_of_one_name(unpacking: Unpacking, tmp_path: Path) -> None:
    unpacking.lock(write_wheel(tmp_path, "one", "1", {"shared/__init__.py": ""}), "one", "1")
    unpacking.lock(write_wheel(tmp_path, "two", "1", {"shared/__init__.py": ""}), "two", "1")
    assert unpacking.run() == {"shared/__init__.py": ""}
    unpacking.lock(write_wheel(tmp_path, "three", "1", {"shared/__init__.py": "x"}), "three", "1")
    with pytest.raises(StageError, match="one and three both have shared/"):
        unpacking.run()


@pytest.mark.parametrize("place", ["../out.py", "/etc/out.py", "one/../../out.py", "one-1.data/unknown/x"])
def test_no_file_leaves_the_environment(unpacking: Unpacking, tmp_path: Path, place: str) -> None:
    unpacking.lock(write_wheel(tmp_path, "one", "1", {place: "x"}), "one", "1")
    with pytest.raises(StageError, match="is no place in an environment"):
        unpacking.run()
    assert not (tmp_path / "out.py").exists()


def test_a_file_that_is_no_wheel_is_told(unpacking: Unpacking, tmp_path: Path) -> None:
    (tmp_path / "one.zip").write_bytes(b"no archive")
    unpacking.lock((tmp_path / "one.zip", ""), "one", "1")
    assert "one-1.whl is no wheel" in unpacking.refusal()


def test_a_wheel_of_another_version_than_the_lock_says(unpacking: Unpacking, tmp_path: Path) -> None:
    unpacking.lock(write_wheel(tmp_path, "one", "1.1"), "one", "1.0")
    assert "the wheel that one 1.0 is pinned to is one 1.1: correct its hash" in unpacking.refusal()


@pytest.mark.parametrize(
    ("tag", "metadata", "told"),
    [
        (f"{OTHER_PYTHON}-{OTHER_PYTHON}-manylinux_2_28_x86_64", "", f"it is for {OTHER_PYTHON}"),
        ("py3-none-win_amd64", "", "it is for py3-none-win_amd64"),
        ("py3-none-any", "Requires-Python: >=4\n", "it is for Python >=4"),
    ],
)
def test_a_wheel_for_another_python_or_machine(
    unpacking: Unpacking, tmp_path: Path, tag: str, metadata: str, told: str
) -> None:
    unpacking.lock(write_wheel(tmp_path, "one", "1", tag=tag, metadata=metadata), "one", "1")
    assert told in unpacking.refusal()


def test_what_a_wheel_needs_must_be_locked_too(unpacking: Unpacking, tmp_path: Path) -> None:
    needs = (
        "Requires-Dist: two>=2\nRequires-Dist: Three\nRequires-Dist: four; extra == 'more'\n"
        "Requires-Dist: five; python_version < '3'\n"
    )
    unpacking.lock(write_wheel(tmp_path, "one", "1", metadata=needs), "one", "1")
    unpacking.lock(write_wheel(tmp_path, "two", "1"), "two", "1")
    told = unpacking.refusal()
    assert told.splitlines()[1:] == [
        "  one 1 needs two>=2, and there is 1",
        "  one 1 needs Three, which is not there",
    ]


def test_what_is_said_to_be_left_out_may_be_missing_and_not_of_another_version(
    unpacking: Unpacking, tmp_path: Path
) -> None:
    needs = "Requires-Dist: Three_Words\nRequires-Dist: two>=2\n"
    unpacking.lock(write_wheel(tmp_path, "one", "1", {"one.py": ""}, metadata=needs), "one", "1")
    assert unpacking.run(without=["three-words", "two"]) == {"one.py": ""}
    unpacking.lock(write_wheel(tmp_path, "two", "1"), "two", "1")
    with pytest.raises(StageError, match="one 1 needs two>=2, and there is 1"):
        unpacking.run(without=["three-words", "two"])


@pytest.mark.parametrize(
    ("metadata", "reference"),
    [
        ("License-Expression: MIT AND LicenseRef-Maker-Terms\n", "LicenseRef-Maker-Terms"),
        ("License: Maker's Terms\nClassifier: License :: Other/Proprietary License\n", "LicenseRef-Maker-s-Terms"),
        ("Classifier: License :: Other/Proprietary License\n", "LicenseRef-Other-Proprietary-License"),
    ],
)
def test_a_proprietary_wheel_needs_its_licence_accepted(
    unpacking: Unpacking, tmp_path: Path, metadata: str, reference: str
) -> None:
    unpacking.lock(write_wheel(tmp_path, "one", "1", {"one.py": ""}, metadata=metadata), "one", "1")
    assert f"one 1 has the licence {reference}, which is not accepted" in unpacking.refusal()
    assert unpacking.run([reference]) == {"one.py": ""}
