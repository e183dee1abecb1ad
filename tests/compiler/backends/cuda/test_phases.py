"""The pipeline for GPUs: what its passes add, that every kernel is for threads, and the same bytes in every process."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import tvm
from tvm import relax, tirx

import tests
from mlcbuild.compiler import ir
from mlcbuild.compiler.backends.cuda.schedule import SCHEDULING
from mlcbuild.compiler.backends.cuda.stages import compile_kernel
from mlcbuild.compiler.stages import lower, partition, schedule_kernel
from tests.compiler.pipeline import CUDA_TARGET, backend_passes, compile_graph
from tests.compiler.resolving import write_configured
from tests.compiler.tiny_llama import TINY_LLAMA

# Two layers of Llama-3-8B's shape: the kernels of all of them.
LLAMA_3_8B = TINY_LLAMA | {
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 8192,
    "rope_theta": 500000.0,
    "tie_word_embeddings": False,
}
SAMPLING = (
    "multinomial_from_uniform",
    "argsort_probs",
    "sample_with_top_p",
    "sampler_take_probs",
    "sampler_verify_draft_tokens",
    "renormalize_by_top_p",
)
ENTRIES = ("prefill", "decode", "batch_prefill", "batch_decode", "batch_verify")


def _compile(directory: Path, config: Mapping[str, object], quantization: str) -> None:
    """From a configuration to kernels with signatures, in `directory`."""
    _partition(directory, config, quantization)
    for name in _names(directory):
        _schedule(directory, directory, name, optimized=True)


def _partition(directory: Path, config: Mapping[str, object], quantization: str) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(config))
    compile_graph(quantization, CUDA_TARGET, directory)
    at = directory.joinpath
    partition.run(
        module=at("phase3.json"),
        metadata=at("metadata.phase0.json"),
        graph=at("graph.json"),
        kernels=at("kernels"),
        manifest=at("manifest.json"),
    )


def _schedule(partitioned: Path, directory: Path, name: str, *, optimized: bool) -> None:
    schedule_kernel.run(
        kernel=partitioned / "kernels" / f"{name}.json",
        scheduled=directory / f"{name}.json",
        signature=directory / f"{name}.signature.json",
        optimized=optimized,
        target=dict(CUDA_TARGET),
        backend=SCHEDULING,
    )


def _names(directory: Path) -> list[str]:
    manifest = json.loads((directory / "manifest.json").read_text())
    return [str(name) for name in manifest["kernels"]]


def _lower(directory: Path, *, cuda_graph: bool = True, output: str = "lowered") -> Path:
    made = directory / output
    made.mkdir()
    write_configured(directory, "q0f32", {"max_batch_size": 4})
    lower.run(
        graph=directory / "graph.json",
        manifest=directory / "manifest.json",
        signatures=tuple(directory / f"{name}.signature.json" for name in _names(directory)),
        metadata=directory / "metadata.phase0.json",
        model=directory / "configured.json",
        executable=made / "executable.bin",
        shape_functions=made / "shape_functions.o",
        metadata_out=made / "metadata.json",
        cuda_graph=cuda_graph,
        backend=backend_passes(CUDA_TARGET, 5),
        target=dict(CUDA_TARGET),
    )
    return made


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("tiny")
    _compile(directory, TINY_LLAMA, "q4f16_1")
    return directory


def _functions(module: tvm.IRModule, kind: type) -> dict[str, tvm.ir.BaseFunc]:
    return {str(v.name_hint): f for v, f in module.functions_items() if isinstance(f, kind)}


def test_phase0_adds_sampling_and_a_softmax_of_two_kernels(tiny: Path) -> None:
    module = ir.load_module(tiny / "phase0.json")
    functions, kernels = _functions(module, relax.Function), _functions(module, tirx.PrimFunc)
    assert set(SAMPLING) <= set(functions)
    assert {"softmax_chunks", "softmax_normalize"} <= set(kernels)
    assert all("tirx.is_scheduled" in kernels[name].attrs for name in ("softmax_chunks", "softmax_normalize"))


def test_phase0_attaches_the_caches_kernels_for_gpus(tiny: Path) -> None:
    kernels = _functions(ir.load_module(tiny / "phase0.json"), tirx.PrimFunc)
    assert {"batch_decode_paged_kv", "batch_prefill_paged_kv", "batch_prefill_ragged_kv"} <= set(kernels)
    assert not any("cpu" in name for name in kernels)


def test_phase0_marks_what_is_recorded_for_each_of_its_sizes(tiny: Path) -> None:
    functions = _functions(ir.load_module(tiny / "phase3.json"), relax.Function)
    marked = {
        name: list(function.attrs["relax.rewrite_cuda_graph.capture_symbolic_vars"])
        for name, function in functions.items()
        if function.attrs and "relax.rewrite_cuda_graph.capture_symbolic_vars" in function.attrs
    }
    assert marked == {"batch_decode": ["batch_size"], "batch_verify": ["batch_size", "seq_len"]}


def test_no_operator_is_left_for_the_host(tiny: Path) -> None:
    module = ir.load_module(tiny / "phase3.json")
    left = set()
    for function in _functions(module, relax.Function).values():

        def note(expression: object) -> None:
            if isinstance(expression, relax.Call) and isinstance(expression.op, tvm.ir.Op):
                left.add(str(expression.op.name))

        relax.analysis.post_order_visit(function, note)
    called = {"relax.call_tir", "relax.call_tir_inplace", "relax.call_dps_packed", "relax.call_pure_packed"}
    assert left - called <= {"relax.reshape"}


def test_dequantization_is_fused_into_every_reader(tiny: Path) -> None:
    names = set(_functions(ir.load_module(tiny / "phase3.json"), tirx.PrimFunc))
    assert not any(name.rstrip("0123456789") == "dequantize" for name in names)
    assert sum("dequantize" in name and "matmul" in name for name in names) >= 13
    assert any("dequantize" in name and "take" in name for name in names)


def test_the_sorts_memory_is_its_callers(tiny: Path) -> None:
    signatures = [json.loads((tiny / f"{name}.signature.json").read_text()) for name in _names(tiny)]
    (sort,) = [signature for signature in signatures if signature["workspace"]]
    assert all(part.startswith(("float32", "int32")) for part in sort["workspace"])


def test_metadata_name_the_kernels_by_where_they_come_from(tiny: Path) -> None:
    kernels = json.loads((_lower(tiny, output="named") / "metadata.json").read_text())["kernels"]
    assert set(kernels) == {"cuda", "tir", "tvm"}
    assert sum(map(len, kernels.values())) == len(_names(tiny))
    assert any("dequantize_matmul" in name for name in kernels["cuda"])


def _virtual_machine_functions(executable: Path) -> str:
    return executable.read_bytes().decode("latin-1")


def test_decoding_is_recorded_from_o2_on(tiny: Path, tmp_path: Path) -> None:
    with_graphs = _virtual_machine_functions(_lower(tiny) / "executable.bin")
    for entry in ("decode", "batch_decode", "batch_verify"):
        assert f"{entry}_cuda_graph_capture" in with_graphs
    assert "cuda_graph_alloc_init" in with_graphs
    assert "prefill_cuda_graph_capture" not in with_graphs
    without = _virtual_machine_functions(_lower(tiny, cuda_graph=False, output="plain") / "executable.bin")
    assert "cuda_graph" not in without


def test_results_and_what_kernels_hand_on_are_planned_for_the_largest_batch(tiny: Path) -> None:
    usage = json.loads((_lower(tiny, output="usage") / "metadata.json").read_text())["memory_usage"]
    assert set(ENTRIES) <= set(usage)
    # The logits of four sequences are planned with the rest.
    assert usage["batch_decode"] >= 4 * 320 * 4
    assert usage["prefill"] > usage["decode"] > 0


@pytest.fixture(scope="module")
def partitioned(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The directory of the tiny model's kernels in a quantization, made when it is first asked for."""
    made = {"q4f16_1": tiny}

    def of(quantization: str) -> Path:
        if quantization not in made:
            made[quantization] = tmp_path_factory.mktemp(quantization)
            _partition(made[quantization], TINY_LLAMA, quantization)
        return made[quantization]

    return of


@pytest.fixture(scope="module")
def checked() -> set[bytes]:
    """Scheduled kernels whose text was looked at: quantizations, and optimized or not, have many in common."""
    return set()


@pytest.mark.slow
@pytest.mark.parametrize("optimized", [False, True])
@pytest.mark.parametrize("quantization", ["q4f16_1", "q0f16", "q0f32"])
def test_every_kernel_becomes_cuda_text(
    tmp_path: Path, quantization: str, optimized: bool, partitioned: Callable[[str], Path], checked: set[bytes]
) -> None:
    kernels = partitioned(quantization)
    for name in _names(kernels):
        _schedule(kernels, tmp_path, name, optimized=optimized)
        _check_text(tmp_path, name, checked)


@pytest.mark.slow
def test_every_kernel_of_llama_3_8b_becomes_cuda_text(tmp_path: Path, checked: set[bytes]) -> None:
    _compile(tmp_path, LLAMA_3_8B, "q4f16_1")
    for name in _names(tmp_path):
        _check_text(tmp_path, name, checked)


def _check_text(directory: Path, name: str, checked: set[bytes]) -> None:
    scheduled = directory / f"{name}.json"
    content = hashlib.sha256(name.encode() + b"\n" + scheduled.read_bytes()).digest()
    if content in checked:
        return
    compile_kernel.run(
        scheduled=scheduled,
        object=directory / "kernel.o",
        device_source=directory / "kernel.cu",
        launch=directory / "launch.json",
        target=dict(CUDA_TARGET),
    )
    assert "__global__" in (directory / "kernel.cu").read_text()
    functions = json.loads((directory / "launch.json").read_text())["functions"]
    assert all(function["name"].startswith(name) for function in functions)
    tags = {tag for function in functions for tag in function["launch_parameters"]}
    assert any(tag.startswith("threadIdx") for tag in tags), f"{name} has no threads"
    checked.add(content)


_PROGRAM = """
import json, sys
from pathlib import Path
from tests.compiler.backends.cuda.test_phases import _compile, _lower
_compile(Path(sys.argv[2]), json.loads(sys.argv[1]), "q4f16_1")
_lower(Path(sys.argv[2]))
"""


# In CI, `tests/end_to_end/test_byte_identity.py` holds the same, with more that differs. This names files of stages.
@pytest.mark.exhaustive
def test_two_processes_make_the_same_files(tmp_path: Path) -> None:
    root = Path(str(tests.__path__[0])).parent
    made = []
    for seed, place in ((1, "a"), (4711, "b/c")):
        directory = tmp_path / place
        directory.mkdir(parents=True)
        subprocess.run(
            [sys.executable, "-c", _PROGRAM, json.dumps(TINY_LLAMA), str(directory / "out")],
            check=True,
            cwd=directory,
            env={**os.environ, "PYTHONHASHSEED": str(seed), "PYTHONPATH": str(root)},
        )
        files = [path for path in sorted((directory / "out").rglob("*")) if path.is_file()]
        made.append({str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).digest() for path in files})
    first, second = made
    assert len(first) > 100
    assert {name for name, digest in first.items() if second.get(name) != digest} == set()
