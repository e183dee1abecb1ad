"""IR as files: the same bytes wherever the sources lie, and clear errors for what is no IR."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import tvm

from mlcbuild.compiler import ir
from mlcbuild.errors import StageError

_SCRIPT = """
from tvm.script import tirx as T

@T.prim_func(s_tir=True)
def doubled(a: T.Buffer((8,), "float32"), b: T.Buffer((8,), "float32")):
    for i in range(8):
        with T.sblock("double"):
            v = T.axis.spatial(8, i)
            b[v] = a[v] * T.float32(2)
"""


def _parsed(path: Path, source: str) -> tvm.IRModule:
    path.parent.mkdir(parents=True)
    path.write_text(source)
    specification = importlib.util.spec_from_file_location(path.stem, path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return tvm.IRModule({"doubled": module.doubled})


def test_bytes_do_not_depend_on_where_the_source_lies(tmp_path: Path) -> None:
    here = _parsed(tmp_path / "here" / "kernels.py", _SCRIPT)
    there = _parsed(tmp_path / "a" / "much" / "longer" / "way" / "other.py", "# moved\n" * 8 + _SCRIPT)
    assert '"ir.Span"' in str(tvm.ir.save_json(here))
    assert ir.to_json(here) == ir.to_json(there)


def test_written_ir_names_no_file(tmp_path: Path) -> None:
    text = ir.to_json(_parsed(tmp_path / "here" / "kernels.py", _SCRIPT))
    assert "ir.Span" not in text
    assert "SourceName" not in text
    assert str(tmp_path) not in text


def test_reading_and_writing_again_gives_the_same_bytes(tmp_path: Path) -> None:
    ir.save_module(_parsed(tmp_path / "here" / "kernels.py", _SCRIPT), tmp_path / "one.json")
    ir.save_module(ir.load_module(tmp_path / "one.json"), tmp_path / "two.json")
    assert (tmp_path / "one.json").read_bytes() == (tmp_path / "two.json").read_bytes()


@pytest.mark.parametrize(
    "content",
    [b"", b"not json", b"[]", b"{}", b'{"root_index":0,"nodes":[]}', b"\xff\xfe", b'{"nodes":[{"type":"x"}]}'],
)
def test_a_file_that_holds_no_ir_is_told_by_name(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "broken.json"
    path.write_bytes(content)
    with pytest.raises(StageError, match=r"broken\.json is not IR"):
        ir.load_module(path)


def test_ir_of_another_kind_is_told_by_its_kind(tmp_path: Path) -> None:
    path = tmp_path / "number.json"
    path.write_text(ir.to_json(tvm.tirx.IntImm("int64", 3)))
    with pytest.raises(StageError, match=r"number\.json holds IntImm, not an IR module"):
        ir.load_module(path)
