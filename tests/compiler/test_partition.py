"""Partition: kernels by content, and a graph that holds none of their bodies."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import tvm
from tvm import relax, tirx

from mlcbuild.compiler import ir
from mlcbuild.compiler.kernel_description import KernelDescription
from mlcbuild.compiler.passes.canonical_kernel import kernel_name
from mlcbuild.compiler.stages import partition
from mlcbuild.errors import StageError
from tests.compiler.pipeline import CPU_TARGET, compile_graph
from tests.compiler.small_graph import write_small_graph
from tests.compiler.tiny_llama import TINY_LLAMA


def _partition(directory: Path) -> tuple[tvm.IRModule, list[str]]:
    partition.run(
        module=directory / "phase3.json",
        metadata=directory / "metadata.phase0.json",
        graph=directory / "graph.json",
        kernels=directory / "kernels",
        manifest=directory / "manifest.json",
    )
    manifest = json.loads((directory / "manifest.json").read_text())
    assert manifest["version"] == 1
    return ir.load_module(directory / "graph.json"), [str(name) for name in manifest["kernels"]]


def _descriptions(directory: Path) -> dict[str, KernelDescription]:
    manifest = json.loads((directory / "manifest.json").read_text())
    return {name: KernelDescription.read(document) for name, document in manifest["descriptions"].items()}


def _stubs(graph: tvm.IRModule) -> dict[str, tirx.PrimFunc]:
    return {str(v.name_hint): f for v, f in graph.functions_items() if isinstance(f, tirx.PrimFunc)}


def test_equal_kernels_under_different_names_become_one(tmp_path: Path) -> None:
    write_small_graph(tmp_path)
    module = ir.load_module(tmp_path / "phase3.json")
    assert {"scaled", "twin", "increased"} <= {str(v.name_hint) for v in module.get_global_vars()}
    graph, names = _partition(tmp_path)
    assert len(names) == 2
    shared = {str(v.name_hint) for v in relax.analysis.all_global_vars(graph["other"])} - {"other"}
    assert shared < {str(v.name_hint) for v in relax.analysis.all_global_vars(graph["main"])}


def test_the_manifest_lists_sorted_names_of_what_the_files_hold(tmp_path: Path) -> None:
    write_small_graph(tmp_path)
    _, names = _partition(tmp_path)
    assert names == sorted(names)
    assert sorted(path.stem for path in (tmp_path / "kernels").iterdir()) == names
    for name in names:
        assert kernel_name((tmp_path / "kernels" / f"{name}.json").read_bytes()) == name


def test_the_graph_depends_on_a_kernels_content_by_its_name_alone(tmp_path: Path) -> None:
    write_small_graph(tmp_path / "a", factor=2.0)
    write_small_graph(tmp_path / "b", factor=3.0)
    _, first = _partition(tmp_path / "a")
    _, second = _partition(tmp_path / "b")
    (old,) = set(first) - set(second)
    (new,) = set(second) - set(first)
    text = (tmp_path / "a" / "graph.json").read_text()
    assert "2.0" not in text
    assert sorted(text.replace(old, new)) == sorted((tmp_path / "b" / "graph.json").read_text())


def test_stubs_have_the_signature_and_no_body(tmp_path: Path) -> None:
    write_small_graph(tmp_path)
    graph, names = _partition(tmp_path)
    stubs = _stubs(graph)
    assert sorted(stubs) == names
    for name, stub in stubs.items():
        assert str(stub.attrs["global_symbol"]) == name
        assert isinstance(stub.body, tirx.Evaluate)
        assert [str(parameter.dtype) for parameter in stub.params] == ["float32", "float32"]
        assert [int(parameter.shape[1]) for parameter in stub.params] == [8, 8]


def test_kernels_handed_to_the_cache_are_taken_out_too(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(TINY_LLAMA))
    compile_graph("q0f32", CPU_TARGET, tmp_path)
    graph, names = _partition(tmp_path)
    handed = {str(v.name_hint) for v in relax.analysis.all_global_vars(graph["create_tir_paged_kv_cache"])}
    handed -= {"create_tir_paged_kv_cache"}
    assert len(handed) >= 14
    assert handed <= set(names)
    assert sorted(_stubs(graph)) == names


def test_descriptions_say_what_kernels_compute_for_which_functions_and_weights(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(TINY_LLAMA))
    compile_graph("q4f32_1", CPU_TARGET, tmp_path)
    _, names = _partition(tmp_path)
    descriptions = _descriptions(tmp_path)
    assert sorted(descriptions) == names
    hidden, rows = 64, 64 + 2 * 2 * 16  # of queries, keys and values
    qkv = [each for each in descriptions.values() if each.parameters == ("model.layers.*.self_attn.qkv_proj",)]
    assert {(each.operation, each.matrix) for each in qkv} == {("dequantize_matmul", (rows, hidden))}
    assert sorted((each.functions, each.shape) for each in qkv) == [
        (("batch_decode",), ("n", 1, rows)),
        (("batch_prefill", "batch_verify", "prefill"), (1, "n", rows)),
        (("decode",), (1, 1, rows)),
    ]
    norms = [each for each in descriptions.values() if each.operation == "rms_norm"]
    layer = "model.layers.*"
    assert {each.parameters for each in norms} == {
        (f"{layer}.input_layernorm", f"{layer}.post_attention_layernorm", "model.norm")
    }
    (table,) = [each for each in descriptions.values() if each.operation == "dequantize_take"]
    assert table.parameters == ("model.embed_tokens",)
    assert (table.functions, table.shape, table.matrix) == (("embed",), ("n", hidden), ())
    (appended,) = [each for each in descriptions.values() if each.operation == "kv_cache_transpose_append"]
    assert (appended.functions, appended.parameters) == (("create_tir_paged_kv_cache",), ())
    assert appended.shape[1:3] == (2, 2)
    assert all(each.functions for each in descriptions.values())


def test_equal_modules_have_equal_manifests_and_other_names_change_no_kernel(tmp_path: Path) -> None:
    for name in "abc":
        write_small_graph(tmp_path / name)
    renamed = tmp_path / "c" / "phase3.json"
    renamed.write_text(renamed.read_text().replace('"scaled"', '"big"').replace('"main"', '"run"'))
    names = {name: _partition(tmp_path / name)[1] for name in "abc"}
    manifests = {name: (tmp_path / name / "manifest.json").read_bytes() for name in "abc"}
    assert manifests["a"] == manifests["b"]
    assert names["a"] == names["c"]
    files = [[path.read_bytes() for path in sorted((tmp_path / name / "kernels").iterdir())] for name in "ac"]
    assert files[0] == files[1]
    first, other = (_descriptions(tmp_path / name) for name in "ac")
    assert {(each.operation, each.functions) for each in first.values()} == {
        ("twin", ("main", "other")),  # equal kernels are described by the shortest name
        ("increased", ("main",)),
    }
    assert {(each.operation, each.functions) for each in other.values()} == {
        ("big", ("other", "run")),
        ("increased", ("run",)),
    }


def test_a_file_that_is_no_module_is_told(tmp_path: Path) -> None:
    (tmp_path / "phase3.json").write_text("{")
    with pytest.raises(StageError, match=r"phase3\.json is not IR"):
        _partition(tmp_path)
