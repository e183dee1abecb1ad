"""The phases: every pass has its place, and a model leaves them as calls of fused kernels."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import tvm
from tvm import relax, tirx

from mlcbuild.compiler import ir
from mlcbuild.compiler.kernel_attributes import RESTORES_WEIGHTS
from mlcbuild.compiler.phases.entry import PassOrigin
from mlcbuild.compiler.phases.phase0 import PHASE0
from mlcbuild.compiler.phases.phase1 import PHASE1
from mlcbuild.compiler.phases.phase2 import PHASE2
from mlcbuild.compiler.phases.phase3 import PHASE3
from mlcbuild.compiler.phases.phase4 import PHASE4
from mlcbuild.compiler.phases.phase5 import PHASE5
from mlcbuild.compiler.stages import phase0
from mlcbuild.errors import StageError
from tests.compiler.pipeline import CPU_TARGET, compile_graph
from tests.compiler.tiny_llama import TINY_LLAMA

_MLC_PASSES = tuple(
    re.findall(
        r"\w+",
        """
        DispatchKVCacheCreation AttachSoftmaxWithTemperature AttachVariableBounds AttachCUDAGraphSymbolicCaptureHints
        AttachPipelineParallelStages AttachLogitProcessFunc AttachAdditionalPrimFuncs AttachAllocEmbeddingTensorFunc
        AttachGPUSamplingFunc AttachSpecDecodeAuxFuncs AttachMemoryPlanAttr AttachSequenceLengthPaddingFactor BindTarget
        DispatchTritonKernel FuseFTDequantizeEpilogue FuseDequantizeTranspose BLASDispatch FuseAddRMSNorm
        FuseTransposeMatmul DispatchSampling DispatchSortScan LegalizeOps AnnotateTIROpPattern FoldConstant FuseOps
        FuseTIR FuseDequantizeMatmulEwise FuseDequantizeTake DeadCodeElimination CleanUpTIRAttrs LowBatchGemvSpecialize
        ApplyDefaultSchedule LiftTIRGlobalBufferAlloc ForceNarrowIndexToInt32 ScatterTupleGetItem
        PipelineParallelRewrite RewriteDataflowReshape ToNonDataflow RemovePurityChecking CallTIRRewrite
        IPCAllReduceRewrite StaticPlanBlockMemory AttachMetadataWithMemoryUsage RewriteCUDAGraph
        AttachCUDAGraphAllocInitFunc LowerGPUIPCAllocStorage LowerAllocTensor KillAfterLastUse LowerRuntimeBuiltin
        VMShapeLower AttachGlobalSymbol AttachExternModules
        """,
    )
)


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Directories with the files of a tiny llama from Export to Phase3, by quantization."""
    made = {}
    for quantization in ("q0f32", "q4f16_1"):
        directory = tmp_path_factory.mktemp(quantization)
        (directory / "config.json").write_text(json.dumps(TINY_LLAMA))
        compile_graph(quantization, CPU_TARGET, directory)
        made[quantization] = directory
    return made


def _operators(module: tvm.IRModule, name: str) -> set[str]:
    """Operators that an entry function and its layers call, other than kernels and the runtime's functions."""
    found = set()

    def note(expression: Any) -> None:
        if isinstance(expression, relax.Call) and isinstance(expression.op, tvm.ir.Op):
            found.add(str(expression.op.name))

    for function in (name, *_layers(module, name)):
        relax.analysis.post_order_visit(module[function], note)
    return found - {"relax.call_tir", "relax.call_dps_packed"}


def _called(module: tvm.IRModule, name: str) -> set[str]:
    return {str(variable.name_hint) for variable in relax.analysis.all_global_vars(module[name])} - {name}


def _layers(module: tvm.IRModule, name: str) -> list[str]:
    return [called for called in _called(module, name) if isinstance(module[called], relax.Function)]


def _kernels(module: tvm.IRModule, name: str) -> list[str]:
    """Kernels of an entry function and its layers."""
    layers = _layers(module, name)
    return sorted(_called(module, name).union(*(_called(module, layer) for layer in layers)) - set(layers))


def test_every_pass_of_mlc_llms_pipeline_has_one_place() -> None:
    phases = (PHASE0, PHASE1, PHASE2, PHASE3, PHASE4, PHASE5)
    places = [entry.name for phase in phases for entry in phase if entry.origin is PassOrigin.MLC_LLM]
    assert sorted(places) == sorted(_MLC_PASSES)
    assert len(_MLC_PASSES) == 52


def test_phase0_puts_the_targets_cache_in_place_and_tells_its_shape(graphs: dict[str, Path]) -> None:
    module = ir.load_module(graphs["q4f16_1"] / "phase0.json")
    text = str(module["create_tir_paged_kv_cache"])
    assert "vm.builtin.paged_attention_kv_cache_create" in text
    assert "mlcbuild.create_paged_kv_cache" not in text
    metadata = json.loads((graphs["q4f16_1"] / "metadata.phase0.json").read_text())
    assert metadata["kv_cache"] == {
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
    }


def test_phase0_adds_the_softmax(graphs: dict[str, Path]) -> None:
    function = ir.load_module(graphs["q0f32"] / "phase0.json")["softmax_with_temperature"]
    assert [int(size) for size in list(function.params[0].ty.shape)[1:]] == [1, 320]


def test_nothing_but_kernels_and_views_is_left_after_phase3(graphs: dict[str, Path]) -> None:
    for directory in graphs.values():
        module = ir.load_module(directory / "phase3.json")
        for name in ("embed", "prefill", "decode", "batch_prefill", "batch_decode", "batch_verify"):
            assert _operators(module, name) <= {"relax.reshape"}


def test_dequantization_is_fused_into_every_reader(graphs: dict[str, Path]) -> None:
    module = ir.load_module(graphs["q4f16_1"] / "phase3.json")
    names = {str(v.name_hint) for v, f in module.functions_items() if isinstance(f, tirx.PrimFunc)}
    assert not any(name.rstrip("0123456789") == "dequantize" for name in names)
    for entry in ("prefill", "decode", "batch_decode", "batch_verify"):
        matmuls = [name for name in _kernels(module, entry) if "matmul" in name]
        assert len(matmuls) == 5
        assert all(name.startswith("fused_dequantize") for name in matmuls)
    assert [name for name in _kernels(module, "embed") if name.startswith("fused_dequantize")]


def test_no_attribute_that_only_fusion_reads_is_left_after_phase3(graphs: dict[str, Path]) -> None:
    before, after = (ir.load_module(graphs["q4f16_1"] / f"phase{number}.json") for number in (2, 3))
    kernels = [[f for _, f in module.functions_items() if isinstance(f, tirx.PrimFunc)] for module in (before, after)]
    assert [sum(RESTORES_WEIGHTS in kernel.attrs for kernel in each) for each in kernels] == [5, 0]


def test_residuals_are_added_where_the_product_is_made(graphs: dict[str, Path]) -> None:
    for directory in graphs.values():
        names = _kernels(ir.load_module(directory / "phase3.json"), "decode")
        assert not any(name.startswith("add") for name in names)
        assert sum("matmul" in name and "add" in name for name in names) == 2


def test_products_of_narrow_floats_are_summed_in_float32(graphs: dict[str, Path]) -> None:
    module = ir.load_module(graphs["q4f16_1"] / "phase1.json")
    sums = {
        str(function.params[-1].dtype)
        for variable, function in module.functions_items()
        if str(variable.name_hint).startswith("NT_matmul")
    }
    assert sums == {"float32"}


def test_layers_share_their_kernels(graphs: dict[str, Path]) -> None:
    names = _kernels(ir.load_module(graphs["q0f32"] / "phase3.json"), "decode")
    assert len(names) == 7  # norm, four products of a layer, the activation, and the head


def test_equal_layers_are_one_function_however_many(graphs: dict[str, Path]) -> None:
    for directory in graphs.values():
        module = ir.load_module(directory / "phase3.json")
        entries = ("prefill", "decode", "batch_prefill", "batch_decode", "batch_verify")
        assert all(len(_layers(module, name)) == 1 for name in entries)
        assert len({_layers(module, name)[0] for name in entries}) == 3  # n tokens, one token, a batch of one each


def test_attention_is_neither_preceded_nor_followed_by_a_copy(graphs: dict[str, Path]) -> None:
    for directory in graphs.values():
        names = _kernels(ir.load_module(directory / "phase3.json"), "batch_decode")
        assert not any("reshape" in name for name in names)


def test_no_phase_writes_locations(graphs: dict[str, Path]) -> None:
    for directory in graphs.values():
        for path in directory.glob("*.json"):
            assert "ir.Span" not in path.read_text(), path.name


def test_metadata_that_is_none_is_told(graphs: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "metadata.json").write_text("[1]")
    with pytest.raises(StageError, match=r"metadata\.json is not metadata"):
        phase0.run(
            module=graphs["q0f32"] / "export.json",
            metadata=tmp_path / "metadata.json",
            window=graphs["q0f32"] / "window.json",
            module_out=tmp_path / "out.json",
            metadata_out=tmp_path / "metadata_out.json",
            target=dict(CPU_TARGET),
        )
