"""What onnx_model accepts, and which mistakes of a model it tells before a compiler sees them."""

from __future__ import annotations

import json
from pathlib import Path

from tests.end_to_end.compilers.compiler_world import CompilerWorld

REFUSED = {
    "cut": "cut.onnx is no ONNX model: ",
    "infinite": "the weights w1 have values that are not finite",
    "custom": "operators that ONNX does not have, unless `domains` names theirs: some.maker.Relu",
    "shapes": "shapes.onnx is no valid ONNX model: ",
    "missing": "missing.onnx is no valid ONNX model: ",
}


def test_a_model_is_checked_and_written_anew(tmp_path: Path) -> None:
    world = CompilerWorld(tmp_path)
    for change in (*REFUSED, "apart"):
        world.table("changed", f"{change}-source", model=":mlp-source", change=change, environment=":onnxruntime")
        world.table("onnx_model", change, source=f":{change}-source", environment=":onnxruntime")
    world.table("onnx_model", "sized", source=":mlp-source", environment=":onnxruntime", sizes={"batch": 8})
    world.table("onnx_model", "missized", source=":mlp-source", environment=":onnxruntime", sizes={"batches": 8})
    wanted = ("mlp", "apart", "sized", "missized", *REFUSED)
    done = world.build("--keep-going", *(f"//:{name}" for name in wanted))
    assert done.code == 1
    for name, told in {**REFUSED, "missized": "no input has a size batches; there are: batch"}.items():
        assert not done.report["targets"][f"//:{name}"]["success"], name
        assert told in done.err, done.err

    # Weights in a file of their own, or in the model: the same model comes out.
    assert world.output("apart/model.onnx").read_bytes() == world.output("mlp/model.onnx").read_bytes()
    described = {name: json.loads(world.output(f"{name}/model.json").read_text()) for name in ("mlp", "sized")}
    assert described["mlp"]["inputs"] == [{"name": "x", "type": "float", "shape": ["batch", 64]}]
    assert described["sized"]["outputs"] == [{"name": "y", "type": "float", "shape": [8, 64]}]
    assert described["sized"]["operators"] == {"Add": 1, "MatMul": 2, "Relu": 1}
    assert described["sized"]["weight_bytes"] == 4 * (64 * 256 + 256 + 256 * 64)
