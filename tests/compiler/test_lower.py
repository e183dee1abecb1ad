"""Lower: memory plans and metadata by the sizes asked for, one canonical order, and checked signatures."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from tvm import tirx
from tvm.script import tirx as T  # noqa: N812

from mlcbuild.compiler import ir
from mlcbuild.compiler.passes.canonical_shape_functions import canonical_shape_function
from mlcbuild.compiler.stages import lower, partition
from mlcbuild.errors import InternalError, StageError
from tests.compiler.pipeline import CPU_TARGET
from tests.compiler.resolving import write_configured, write_resolved
from tests.compiler.small_graph import CONTEXT, write_small_graph
from tests.compiler.tiny_llama import TINY_LLAMA


def _partitioned(directory: Path) -> list[str]:
    write_small_graph(directory)
    partition.run(
        module=directory / "phase3.json",
        metadata=directory / "metadata.phase0.json",
        graph=directory / "graph.json",
        kernels=directory / "kernels",
        manifest=directory / "manifest.json",
    )
    return [str(name) for name in json.loads((directory / "manifest.json").read_text())["kernels"]]


def _signatures(directory: Path, names: list[str]) -> tuple[Path, ...]:
    paths = tuple(directory / f"{name}.signature.json" for name in names)
    for path, name in zip(paths, names, strict=True):
        path.write_text(json.dumps({"version": 1, "name": name, "source": "tir", "workspace": [], "index_bits": 64}))
    return paths


def _lower(directory: Path, signatures: tuple[Path, ...], **overrides: object) -> dict[str, Any]:
    write_configured(directory, "q0f32", overrides)
    lower.run(
        graph=directory / "graph.json",
        manifest=directory / "manifest.json",
        signatures=signatures,
        metadata=directory / "metadata.phase0.json",
        model=directory / "configured.json",
        executable=directory / "executable.bin",
        shape_functions=directory / "shape_functions.o",
        metadata_out=directory / "metadata.json",
        target=dict(CPU_TARGET),
        cuda_graph=False,
    )
    document: dict[str, Any] = json.loads((directory / "metadata.json").read_text())
    return document


def test_memory_is_planned_for_the_largest_sizes(tmp_path: Path) -> None:
    names = _partitioned(tmp_path)
    usage = _lower(tmp_path, _signatures(tmp_path, names))["memory_usage"]
    # Two intermediate tensors of a prefill chunk of rows of 8 float32; the result is the caller's.
    assert usage["main"] == 2 * CONTEXT * 8 * 4


def test_overrides_change_the_plan_and_the_metadata(tmp_path: Path) -> None:
    names = _partitioned(tmp_path)
    document = _lower(tmp_path, _signatures(tmp_path, names), prefill_chunk_size=16, max_batch_size=2)
    assert document["memory_usage"]["main"] == 2 * 16 * 8 * 4
    assert (document["prefill_chunk_size"], document["max_batch_size"]) == (16, 2)


def test_a_shorter_context_shortens_the_prefill_chunk(tmp_path: Path) -> None:
    names = _partitioned(tmp_path)
    document = _lower(tmp_path, _signatures(tmp_path, names), context_window_size=8)
    assert document["prefill_chunk_size"] == 8
    assert document["memory_usage"]["main"] == 2 * 8 * 8 * 4


def test_metadata_says_what_sizes_a_library_is_made_for(tmp_path: Path) -> None:
    names = _partitioned(tmp_path)
    document = _lower(tmp_path, _signatures(tmp_path, names))
    expected = {
        "context_window_size": CONTEXT,
        "sliding_window_size": -1,
        "attention_sink_size": 0,
        "prefill_chunk_size": CONTEXT,
        "max_batch_size": 128,
        "tensor_parallel_shards": 1,
        "model_task": "chat",
    }
    assert {name: document[name] for name in expected} == expected


def test_metadata_names_the_kernels_by_where_they_come_from(tmp_path: Path) -> None:
    names = _partitioned(tmp_path)
    paths = _signatures(tmp_path, names)
    signature = json.loads(paths[0].read_text())
    paths[0].write_text(json.dumps(signature | {"source": "mlcbuild"}))
    kernels = _lower(tmp_path, paths)["kernels"]
    assert {source: len(shown) for source, shown in kernels.items()} == {"mlcbuild": 1, "tir": len(names) - 1}
    (shown,) = kernels["mlcbuild"]
    assert shown.endswith(f" ({names[0].removeprefix('kernel_')[:8]})")
    assert " " in shown.partition(" (")[0], "its shape is behind what it computes"
    assert kernels["tir"] == sorted(kernels["tir"])


def test_a_manifest_of_another_graph_is_told(tmp_path: Path) -> None:
    names = _partitioned(tmp_path)
    document = json.loads((tmp_path / "manifest.json").read_text())
    (tmp_path / "manifest.json").write_text(json.dumps(document | {"descriptions": {}}))
    with pytest.raises(StageError, match=r"manifest\.json does not describe the kernels of this graph"):
        _lower(tmp_path, _signatures(tmp_path, names))


def test_a_mistrals_window_is_in_the_metadata(tmp_path: Path) -> None:
    names = _partitioned(tmp_path)
    write_resolved(tmp_path, TINY_LLAMA | {"model_type": "mistral", "sliding_window": 48})
    document = _lower(tmp_path, _signatures(tmp_path, names))
    assert document["context_window_size"] == -1
    assert document["sliding_window_size"] == 48
    assert document["attention_sink_size"] == 0


def test_a_kernel_without_a_signature_is_told(tmp_path: Path) -> None:
    names = _partitioned(tmp_path)
    with pytest.raises(StageError, match=f"{names[1]} has no signature"):
        _lower(tmp_path, _signatures(tmp_path, names[:1]))


def test_a_signature_of_no_kernel_is_told(tmp_path: Path) -> None:
    names = _partitioned(tmp_path)
    with pytest.raises(StageError, match="kernel_0 is not a kernel of this graph"):
        _lower(tmp_path, _signatures(tmp_path, [*names, "kernel_0"]))


def test_a_signature_that_is_none_is_told(tmp_path: Path) -> None:
    names = _partitioned(tmp_path)
    paths = _signatures(tmp_path, names)
    paths[0].write_text("[]")
    with pytest.raises(StageError, match="is not the signature of a kernel"):
        _lower(tmp_path, paths)


@T.prim_func(s_tir=True)
def _slots(sizes: T.Buffer((T.int64(5),), "int64")) -> None:  # type: ignore[valid-type]
    sizes[T.int64(2)] = sizes[T.int64(0)] * T.int64(4)
    sizes[T.int64(4)] = sizes[T.int64(0)] + sizes[T.int64(1)]
    sizes[T.int64(3)] = T.max(sizes[T.int64(1)], T.int64(7))


def test_stores_in_any_order_get_the_same_one() -> None:
    texts = {
        ir.to_json(canonical_shape_function(_slots.with_body(tirx.SeqStmt(list(order)))))
        for order in itertools.permutations(_slots.body.seq)
    }
    assert len(texts) == 1


@T.prim_func(s_tir=True)
def _dependent(sizes: T.Buffer((T.int64(3),), "int64")) -> None:  # type: ignore[valid-type]
    sizes[T.int64(2)] = sizes[T.int64(0)] * T.int64(4)
    sizes[T.int64(1)] = T.max(T.int64(1), sizes[T.int64(2)] + T.int64(1))


def test_stores_that_depend_on_each_other_are_never_moved() -> None:
    with pytest.raises(InternalError, match="reads a slot that it also writes"):
        canonical_shape_function(_dependent)


def test_a_graph_of_no_model_has_neither_sizes_nor_layers(tmp_path: Path) -> None:
    """What an ONNX model becomes: its metadata has its weights alone, and memory is not planned for a largest size."""
    names = _partitioned(tmp_path)
    lower.run(
        graph=tmp_path / "graph.json",
        manifest=tmp_path / "manifest.json",
        signatures=_signatures(tmp_path, names),
        metadata=tmp_path / "metadata.phase0.json",
        executable=tmp_path / "executable.bin",
        shape_functions=tmp_path / "shape_functions.o",
        metadata_out=tmp_path / "metadata.json",
        target=dict(CPU_TARGET),
        cuda_graph=False,
    )
    document = json.loads((tmp_path / "metadata.json").read_text())
    assert not document.keys() & {"context_window_size", "active_vocab_size", "prefill_chunk_size"}
    assert len(document["kernels"]["tir"]) == len(names)
    assert (tmp_path / "executable.bin").stat().st_size > 0
