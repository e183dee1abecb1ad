"""SHA256SUMS is read as it is written, and its paths are those that a line can hold."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlcbuild.release.checksums import checksums, read_checksums
from mlcbuild.release.contents import ReleaseFile
from mlcbuild.release.layout import conflict, path_error

PATHS = st.lists(st.text(min_size=1, max_size=12), min_size=1, max_size=3).map("/".join)


@given(st.dictionaries(PATHS.filter(lambda path: not path_error(path)), st.binary(max_size=8), max_size=6))
def test_what_is_written_is_read(contents: dict[str, bytes]) -> None:
    files = [
        ReleaseFile(path=path, sha256=hashlib.sha256(data).hexdigest(), size_bytes=len(data), data=data)
        for path, data in contents.items()
    ]
    assert read_checksums(checksums(files)) == {file.path: file.sha256 for file in files}


@given(PATHS)
def test_a_path_without_an_error_stays_below_its_folder_and_in_its_line(path: str) -> None:
    if not path_error(path):
        assert not path.startswith("/")
        assert not {"", ".", ".."} & set(path.split("/"))
        assert len(f"{'0' * 64}  {path}\n".splitlines()) == 1


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"abc  a\n", "line 1 is not"),
        (b"0" * 64 + b" a\n", "line 1 is not"),
        (b"0" * 64 + b"  a\n" + b"1" * 64 + b"  a\n", "line 2 repeats a"),
        (b"\xff", "utf-8"),
    ],
)
def test_what_is_not_such_a_file_is_told(content: bytes, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        read_checksums(content)


@pytest.mark.parametrize(
    ("paths", "found"),
    [(["a", "b/c"], ""), (["a", "a"], "a"), (["a", "a/b"], "a"), (["a/b/c", "a/b"], "a/b"), (["ab", "a/b"], "")],
)
def test_two_files_in_one_place_are_found(paths: list[str], found: str) -> None:
    assert conflict(paths) == found
