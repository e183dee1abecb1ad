"""Multi-head latent attention for NVIDIA GPUs: TVM's kernels, with a launch behind the first that marks logarithms."""

from __future__ import annotations

import math

import tvm
import tvm.tirx.script.builder as T  # noqa: N812
import tvm_ffi
from tvm import s_tir, tirx
from tvm.relax.frontend.nn.llm.kv_cache import (
    _attention_prefill_mla,
    _attention_prefill_ragged,
    _copy_single_page_mla,
    _merge_state_inplace,
)

from mlcbuild.compiler.backends.cuda.kernels import instructions as gpu
from mlcbuild.compiler.backends.cuda.kernels.launching import register
from mlcbuild.compiler.backends.cuda.kernels.tvm_attention import followed_by
from mlcbuild.compiler.kernels.building import statement, store
from mlcbuild.compiler.models.architecture.latent import ALONE, IN_CACHE
from mlcbuild.compiler.models.caches.kv_cache import KVCacheGeometry
from mlcbuild.compiler.passes.latent_kv_cache import LatentKernels
from mlcbuild.errors import StageError

_WARP = 32


def latent_kernels(geometry: KVCacheGeometry, target: tvm.target.Target) -> LatentKernels:
    """The kernels of a cache. Raises StageError for sizes that TVM's kernels have no tiles for."""
    latent, heads, dtype = geometry.latent, geometry.num_attention_heads, geometry.dtype
    assert latent is not None
    rotated = geometry.head_dim - latent.rank
    try:
        ragged = _attention_prefill_ragged(heads, heads, latent.key_dim, latent.value_dim, dtype, {}, target)
        paged = _attention_prefill_mla(heads, latent.rank, rotated, dtype, False, target)
    except ValueError as error:
        raise StageError(
            f"there are no GPU kernels for latent attention with heads of {latent.key_dim} and {latent.value_dim}"
            f" elements and a latent vector of {latent.rank} and {rotated}: {error}"
        ) from error
    most = int(target.attrs["max_shared_memory_per_block"])
    for kernel in (ragged, paged):
        if (needed := _shared_memory(kernel)) > most:
            raise StageError(
                f"GPU kernels for latent attention need {needed} bytes of shared memory in {dtype}, and blocks have"
                f" {most}",
                advice=("choose a quantization whose model computes in halves, such as q4f16_1 or q0bf16",),
            )
    return LatentKernels(
        ragged=followed_by(ragged, _marks(ragged)),
        paged=paged,
        merge=_merge_state_inplace(heads, latent.rank, dtype, target, "tir_attention_merge_state_mla"),
        copy_page=_copy_single_page_mla(tirx.Var("page_size", "int64"), geometry.head_dim, dtype, target),
    )


def _shared_memory(kernel: tirx.PrimFunc) -> int:
    """The bytes of a kernel's buffers that a block's threads share."""
    found: dict[str, int] = {}

    def look(block: s_tir.SBlock) -> s_tir.SBlock:
        for buffer in block.alloc_buffers:
            if str(buffer.scope()).startswith("shared"):
                size = math.prod(int(extent) for extent in buffer.shape)
                found[str(buffer.name)] = size * tvm.DataType(str(buffer.dtype)).itemsize
        return block

    tvm_ffi.structural_map(kernel.body, (s_tir.SBlock, look))
    return sum(found.values())


def _marks(ragged: tirx.PrimFunc) -> tirx.Stmt:
    """What `architecture.latent` says of logarithms, a warp for each token."""
    queries, starts = ragged.params[:2]
    first_positions, logarithms = ragged.params[6], ragged.params[8]
    heads = int(queries.shape[1])

    def launch() -> None:
        with (
            T.thread_binding(0, queries.shape[0], thread="blockIdx.x") as token,
            T.thread_binding(0, _WARP, thread="threadIdx.x") as lane,
        ):
            sequence, single = register("int32", T.int32(0)), register("int32", T.int32(1))
            with T.serial(0, starts.shape[0] - 1) as number:
                with gpu.when(starts[number] <= token):
                    store(sequence, T.Cast("int32", number), 0)
                with gpu.when(starts[number + 1] - starts[number] != 1):
                    store(single, T.int32(0), 0)
            begins = register("int32", T.Cast("int32", first_positions[sequence[0]] == 0))
            with gpu.when(tirx.any(single[0] != 0, begins[0] != 0)), gpu.unrolled(-(-heads // _WARP)) as turn:
                head = T.bind(turn * _WARP + lane)
                with gpu.when(head < heads):
                    value = tirx.Select(single[0] != 0, T.float32(IN_CACHE), T.float32(ALONE))
                    store(logarithms, value, token, head)

    return statement(launch)
