"""Passes of MLC-LLM's pipeline that have no code here: each entry says why, and a test holds it to that."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import relax, s_tir, tirx

from mlcbuild.compiler import canonical_file, ir
from mlcbuild.compiler.backends.cpu.schedule import SCHEDULING as CPU
from mlcbuild.compiler.backends.cuda.schedule import SCHEDULING as CUDA
from mlcbuild.compiler.kernels.scheduling import Scheduling, apply_rules
from mlcbuild.compiler.models.sizes import OVERRIDE_RANGES
from mlcbuild.compiler.passes.add_workspaces import add_workspaces
from mlcbuild.compiler.passes.repeat_layers import repeat_layers
from mlcbuild.compiler.phases.phase0 import PHASE0
from mlcbuild.compiler.phases.phase1 import PHASE1
from mlcbuild.compiler.phases.phase2 import PHASE2
from mlcbuild.compiler.phases.phase3 import PHASE3
from mlcbuild.compiler.phases.phase4 import PHASE4
from mlcbuild.compiler.phases.phase5 import PHASE5
from mlcbuild.compiler.stages import partition
from tests.compiler.kernel_running import compiled
from tests.compiler.pipeline import CPU_TARGET, CUDA_TARGET, compile_graph
from tests.compiler.resolving import model_of
from tests.compiler.tiny_llama import TINY_LLAMA

ENTRIES = {entry.name: entry for phase in (PHASE0, PHASE1, PHASE2, PHASE3, PHASE4, PHASE5) for entry in phase}


@dataclass(frozen=True, kw_only=True)
class Model:
    """A model's modules by stage, its kernels before they are scheduled, and its metadata."""

    target: tvm.target.Target
    modules: dict[str, tvm.IRModule]
    kernels: dict[str, tirx.PrimFunc]
    kernel_files: tuple[Path, ...]
    metadata: dict[str, Any]

    def scheduled(self, scheduling: Scheduling) -> Iterator[tuple[str, tirx.PrimFunc]]:
        with self.target:
            for name, kernel in self.kernels.items():
                yield name, apply_rules(kernel, self.target, scheduling.rules)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Model]:
    """A tiny llama for a CPU and for a GPU, quantized and not."""
    return {
        f"{kind} {quantization}": _model(tmp_path_factory.mktemp(kind), target, quantization)
        for kind, target in (("cpu", CPU_TARGET), ("cuda", CUDA_TARGET))
        for quantization in ("q0f32", "q4f16_1")
    }


def _model(directory: Path, target: Any, quantization: str) -> Model:
    at = directory.joinpath
    at("config.json").write_text(json.dumps(TINY_LLAMA))
    compile_graph(quantization, target, directory)
    partition.run(
        module=at("phase3.json"),
        metadata=at("metadata.phase0.json"),
        graph=at("graph.json"),
        kernels=at("kernels"),
        manifest=at("m.json"),
    )
    files = tuple(sorted(at("kernels").iterdir()))
    kernels = [canonical_file.read(file) for file in files]
    names = ("export", "phase0", "phase1", "phase2", "phase3", "graph")
    return Model(
        target=tvm.target.Target(dict(target)),
        modules={name: ir.load_module(at(f"{name}.json")) for name in names},
        kernels={kernel.name: kernel.function for kernel in kernels},
        kernel_files=files,
        metadata=json.loads(at("metadata.phase0.json").read_text()),
    )


def _calls(module: tvm.IRModule) -> Iterator[relax.Call]:
    for function in module.functions.values():
        if isinstance(function, relax.Function):
            found: list[relax.Call] = []
            relax.analysis.post_order_visit(
                function, lambda one, found=found: found.append(one) if isinstance(one, relax.Call) else None
            )
            yield from found


def _operators(module: tvm.IRModule) -> set[str]:
    return {str(call.op.name) for call in _calls(module) if isinstance(call.op, tvm.ir.Op)}


def one_pipeline_stage(models: dict[str, Model]) -> None:
    for model in models.values():
        assert model.metadata["pipeline_parallel_stages"] == 1
        assert all(parameter["pipeline_stages"] == [0] for parameter in model.metadata["params"])


def one_shard(models: dict[str, Model]) -> None:
    assert OVERRIDE_RANGES["tensor_parallel_shards"] == (1, 1)
    for model in models.values():
        assert all(parameter["preprocs"] == [] for parameter in model.metadata["params"])
        assert not any(name.startswith("relax.ccl") for module in model.modules.values() for name in _operators(module))


def no_library_of_kernels_is_called(models: dict[str, Model]) -> None:
    """Functions from outside are those of TVM's runtime: no Triton, CUTLASS, FasterTransformer or BLAS."""
    for model in models.values():
        for name, module in model.modules.items():
            called = {
                str(argument.global_symbol)
                for call in _calls(module)
                for argument in call.args
                if isinstance(argument, relax.ExternFunc)
            }
            assert called, name
            assert all(symbol.startswith(("vm.builtin.", "mlcbuild.create_")) for symbol in called), (name, called)


def no_blas_is_there(models: dict[str, Model]) -> None:
    no_library_of_kernels_is_called(models)
    for name in ("relax.ext.cublas", "relax.ext.hipblas"):
        assert tvm.get_global_func(name, allow_missing=True) is None


def no_matrix_is_transposed(models: dict[str, Model]) -> None:
    for model in models.values():
        assert "relax.permute_dims" in _operators(model.modules["export"])
        assert "relax.permute_dims" not in _operators(model.modules["phase1"])


def rows_are_restored_where_they_are_taken(models: dict[str, Model]) -> None:
    for model in (models["cpu q4f16_1"], models["cuda q4f16_1"]):
        restoring = {str(variable.name_hint) for variable in model.modules["phase3"].get_global_vars()}
        assert any("dequantize" in name and "take" in name for name in restoring)
        assert not any(name.rstrip("0123456789") == "dequantize" for name in restoring)


def kernels_name_no_target(models: dict[str, Model]) -> None:
    for model in models.values():
        assert not any("target" in (function.attrs or {}) for function in model.kernels.values())
        assert not any('"target.Target"' in file.read_text() for file in model.kernel_files)


def few_vectors_have_code_of_their_own(models: dict[str, Model]) -> None:
    """The number of vectors is compared when a kernel runs, in every product of a symbolic number of them."""
    for model, scheduling in ((models["cpu q4f16_1"], CPU), (models["cuda q4f16_1"], CUDA)):
        products = [
            function
            for variable, function in model.modules["phase3"].functions_items()
            if isinstance(function, tirx.PrimFunc) and "matmul" in variable.name_hint and _sizes(function)
        ]
        assert len(products) >= 4
        for product in products:
            with model.target:
                kernel = apply_rules(product, model.target, scheduling.rules)
            assert _compared(kernel) & _sizes(kernel)


def _sizes(kernel: tirx.PrimFunc) -> set[tirx.Var]:
    return {size for buffer in kernel.params for size in getattr(buffer, "shape", ()) if isinstance(size, tirx.Var)}


def _compared(kernel: tirx.PrimFunc) -> set[tirx.Var]:
    """The variables in conditions of statements."""
    found: set[tirx.Var] = set()

    def note(branch: tirx.IfThenElse) -> None:
        tvm_ffi.structural_walk(branch.condition, (tirx.Var, lambda variable: found.add(variable)))

    tvm_ffi.structural_walk(kernel.body, (tirx.IfThenElse, note))
    return found


def every_kernel_is_scheduled(models: dict[str, Model]) -> None:
    model = models["cuda q4f16_1"]
    for name, kernel in model.scheduled(CUDA):
        assert "threadIdx.x" in str(kernel), f"{name} has no threads"


def callers_allocate_what_kernels_need(models: dict[str, Model]) -> None:
    model = models["cuda q4f16_1"]
    lifted = {}
    for name, kernel in model.scheduled(CUDA):
        whole, buffers = CUDA.lift_workspace(kernel)
        if isinstance(whole.body, s_tir.SBlockRealize):
            assert not any(buffer.scope() == "global" for buffer in whole.body.block.alloc_buffers)
        if buffers:
            lifted[name] = tirx.PrimFunc(whole.params, tirx.Evaluate(0), whole.ret_type)
    (name,) = lifted
    calls = [
        call
        for call in _calls(add_workspaces(model.modules["graph"], lifted))
        if any(isinstance(argument, tvm.ir.GlobalVar) and argument.name_hint == name for argument in call.args)
    ]
    assert calls
    more = len(lifted[name].params) - len(model.kernels[name].params)
    assert all(len(call.ty_args[0].fields) > more for call in calls)


def indices_can_need_more_than_32_bits(models: dict[str, Model]) -> None:
    """A kernel writes to the last page of a cache of more than 2^31 numbers. Nothing else of it is in memory."""
    kernel = models["cpu q4f16_1"].modules["phase0"]["tir_kv_cache_transpose_append"]
    pages, keys, *_ = kernel.params
    _, _, heads, slots, width = pages.shape
    page = 2 * int(heads) * int(slots) * int(width)
    count = (1 << 31) // page + 2
    device = tvm.cpu()
    cache = tvm.runtime.empty((count, 2, int(heads), int(slots), int(width)), str(pages.dtype), device)
    ones = tvm.runtime.tensor(np.ones((1, int(heads), int(width)), dtype=str(keys.dtype)), device)
    twos = tvm.runtime.tensor(2 * np.ones((1, int(heads), int(width)), dtype=str(keys.dtype)), device)
    place = tvm.runtime.tensor(np.array([(count - 1) * int(slots) + 3], dtype="int32"), device)
    compiled(kernel)(cache, ones, twos, place)
    written = np.from_dlpack(cache)[count - 1, :, :, 3, :]
    assert (written[0] == 1).all()
    assert (written[1] == 2).all()


def parameters_are_read_before_the_first_layer(models: dict[str, Model]) -> None:
    model = models["cuda q4f16_1"]
    names = [parameter["name"] for parameter in model.metadata["params"]]
    layers = model_of(TINY_LLAMA).layers
    function = repeat_layers(model.modules["graph"], names, layers)["decode"]
    values = [binding.value for block in function.body.blocks for binding in block.bindings]
    packed = function.params[-1]
    read = [
        place
        for place, value in enumerate(values)
        if isinstance(value, relax.TupleGetItem) and value.tuple_value.same_as(packed)
    ]
    calls = [
        place
        for place, value in enumerate(values)
        if isinstance(value, relax.Call) and isinstance(value.op, tvm.ir.GlobalVar)
    ]
    assert len(read) == len(names)
    assert max(read) < min(calls)


def no_module_is_compiled(models: dict[str, Model]) -> None:
    for model in models.values():
        assert not any("external_mods" in (module.attrs or {}) for module in model.modules.values())


CLAIMS: dict[str, Callable[[dict[str, Model]], None]] = {
    "AttachPipelineParallelStages": one_pipeline_stage,
    "AttachAdditionalPrimFuncs": one_shard,
    "AttachSequenceLengthPaddingFactor": no_library_of_kernels_is_called,
    "BindTarget": kernels_name_no_target,
    "FuseFTDequantizeEpilogue": no_library_of_kernels_is_called,
    "FuseDequantizeTranspose": no_matrix_is_transposed,
    "BLASDispatch": no_blas_is_there,
    "FuseDequantizeTake": rows_are_restored_where_they_are_taken,
    "LowBatchGemvSpecialize": few_vectors_have_code_of_their_own,
    "ApplyDefaultSchedule": every_kernel_is_scheduled,
    "LiftTIRGlobalBufferAlloc": callers_allocate_what_kernels_need,
    "ForceNarrowIndexToInt32": indices_can_need_more_than_32_bits,
    "ScatterTupleGetItem": parameters_are_read_before_the_first_layer,
    "PipelineParallelRewrite": one_pipeline_stage,
    "IPCAllReduceRewrite": one_shard,
    "LowerGPUIPCAllocStorage": one_shard,
    "AttachExternModules": no_module_is_compiled,
}


def test_every_claim_is_held() -> None:
    assert {name for name, entry in ENTRIES.items() if entry.not_needed} == set(CLAIMS)


@pytest.mark.parametrize("name", CLAIMS)
def test_it_is_not_needed(models: dict[str, Model], name: str) -> None:
    CLAIMS[name](models)
