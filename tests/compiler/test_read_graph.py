"""ReadGraph: a graph of the version of TVM that mlcbuild has, and no other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import tvm
from tvm import relax

from mlcbuild.compiler import ir
from mlcbuild.compiler.stages import read_graph
from mlcbuild.errors import StageError

PARAMETERS = [{"name": "w", "shape": [8, 4], "dtype": "float32"}]


def written(folder: Path, *, version: str) -> tuple[Path, Path]:
    """A graph with places in the source, as a frontend makes it."""
    x, place = relax.Var("x", relax.TensorType((2, 8), "float32")), tvm.ir.SourceName("model.onnx")
    doubled = relax.Call(tvm.ir.Op.get("relax.add"), [x, x], span=tvm.ir.Span(place, 1, 1, 0, 0))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(doubled))
    graph, description = folder / "graph.json", folder / "model.json"
    graph.write_text(str(tvm.ir.save_json(builder.finalize())))
    description.write_text(json.dumps({"version": 1, "tvm": version, "params": PARAMETERS}))
    return graph, description


def test_a_graph_becomes_ours(tmp_path: Path) -> None:
    graph, description = written(tmp_path, version=tvm.__version__)
    assert "model.onnx" in graph.read_text()
    module, metadata = tmp_path / "module.json", tmp_path / "metadata.json"
    read_graph.run(graph=graph, description=description, module=module, metadata=metadata)
    assert "model.onnx" not in module.read_text(), "where it was made is not in its key"
    assert [str(name.name_hint) for name in ir.load_module(module).functions] == ["main"]
    assert json.loads(metadata.read_text()) == {"params": PARAMETERS}


def test_a_graph_of_another_version_is_told(tmp_path: Path) -> None:
    graph, description = written(tmp_path, version="0.1")
    with pytest.raises(StageError, match=r"TVM 0\.1 imported the model, and mlcbuild has TVM"):
        read_graph.run(
            graph=graph, description=description, module=tmp_path / "module.json", metadata=tmp_path / "metadata.json"
        )
