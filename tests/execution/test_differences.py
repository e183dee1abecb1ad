"""The first difference of two outputs is described for people."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlcbuild.execution.differences import first_difference


@pytest.mark.parametrize(
    ("first", "second", "told"),
    [
        (b"a\nb\nc", b"a\nB\nc", 'line 2: "b" against "B"'),
        (b"a\nb", b"a\nb\nc", "2 lines against 3"),
        (b"\x00\x01\x02", b"\x00\x01\x03", "byte 2: 02 against 03"),
        (b"\x00\x01", b"\x00\x01\x03", "the first 2 bytes are equal, and one of the two has 3 bytes"),
        (b'{"nodes":[{"x":1},{"x":2}]}', b'{"nodes":[{"x":1},{"x":3}]}', "/nodes/1/x: 2 against 3"),
        (b'{"a":1,"b":2}', b'{"b":2,"a":1}', '/: keys ["a", "b"] against ["b", "a"]'),
        (b"[1,2]", b"[1,2,3]", "/: 2 elements against 3"),
        (b"[1,2]", b"[1, 2]", "the same JSON value, written differently"),
        (b'{"a":[]}', b'{"a":{}}', "/a: [] against {}"),
    ],
)
def test_the_first_difference_is_named(first: bytes, second: bytes, told: str) -> None:
    assert first_difference(first, second) == told


def test_a_byte_of_an_object_file_is_told_by_its_section(tmp_path: Path) -> None:
    source = tmp_path / "a.c"
    objects = []
    for value in (1, 2):
        source.write_text(f'const char text[] = "one of {value}"; int other = {value};')
        subprocess.run(["gcc", "-c", "-o", f"{value}.o", "a.c"], cwd=tmp_path, check=True)
        objects.append((tmp_path / f"{value}.o").read_bytes())
    told = first_difference(*objects)
    assert "(section .data)" in told or "(section .rodata)" in told


@given(st.binary(max_size=40), st.binary(max_size=40))
def test_any_two_different_contents_have_a_difference(first: bytes, second: bytes) -> None:
    if first == second:
        with pytest.raises(ValueError, match="equal"):
            first_difference(first, second)
    else:
        assert "\n" not in first_difference(first, second)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
)


@given(st.dictionaries(st.text(max_size=2), JSON), st.dictionaries(st.text(max_size=2), JSON))
def test_the_path_into_json_leads_to_the_difference(first: dict[str, object], second: dict[str, object]) -> None:
    if first == second:
        return
    told = first_difference(json.dumps(first).encode(), json.dumps(second).encode())
    assert told.startswith(("/", "the same"))
