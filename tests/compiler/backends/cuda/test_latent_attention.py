"""Latent attention on GPUs: the kernels' own CUDA text, run on the CPU, against NumPy, one token after another."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import tirx

from mlcbuild.compiler.backends.cuda.kernels.latent_attention import latent_kernels
from mlcbuild.compiler.kernels.bound_bfloat16 import store_before_binding
from mlcbuild.compiler.models.architecture.latent import ALONE, IN_CACHE
from mlcbuild.compiler.passes.latent_kv_cache import LatentKernels
from mlcbuild.compiler.script_parsing import quick_script_parsing
from tests.compiler.backends.cuda import cuda_emulation
from tests.compiler.backends.cuda.cuda_emulation import CUDA_TARGET, run_cuda
from tests.compiler.latent_batch import LatentBatch, latent_geometry

_SIZES = {"heads": 4, "rank": 32, "plain": 16, "rotated": 16, "value": 16}
_TOLERANCE = {"float32": 1e-5, "float16": 1e-2, "bfloat16": 8e-2}
_BATCHES = [[(0, 5)], [(7, 12), (0, 9), (33, 1)], [(0, 1), (16, 1), (40, 1)], [(20, 0), (5, 2)]]
pytestmark = pytest.mark.skipif(not cuda_emulation.AVAILABLE, reason="the C++ compiler g++ runs the kernels")


def _ready(kernel: tirx.PrimFunc) -> tirx.PrimFunc:
    return store_before_binding(tvm.IRModule({"kernel": kernel}))["kernel"]


@functools.cache
def _kernels(dtype: str) -> LatentKernels:
    with quick_script_parsing():
        made = latent_kernels(latent_geometry(dtype, **_SIZES), tvm.target.Target(CUDA_TARGET))
    return LatentKernels(
        ragged=_ready(made.ragged), paged=_ready(made.paged), merge=made.merge, copy_page=made.copy_page
    )


@pytest.mark.parametrize(
    "dtype", ["float16", *(pytest.param(dtype, marks=pytest.mark.exhaustive) for dtype in ("float32", "bfloat16"))]
)
@pytest.mark.parametrize("sequences", _BATCHES, ids=str)
def test_tokens_attend_to_their_pass_and_to_what_the_cache_keeps(
    programs: Path, dtype: str, sequences: list[tuple[int, int]]
) -> None:
    kernels, batch = _kernels(dtype), LatentBatch(sequences, latent_geometry(dtype, **_SIZES))
    own = run_cuda(kernels.ragged, batch.of_ragged(), programs, 1, 0, 1.0, 10000.0, batch.scale)[7:]
    cached = run_cuda(kernels.paged, batch.of_paged(), programs, 0, batch.scale)[6:]
    np.testing.assert_allclose(batch.merged(own, cached), batch.expected, rtol=0, atol=_TOLERANCE[dtype])
    if batch.single:
        assert (own[1] == np.float32(IN_CACHE)).all()
    else:
        alone = np.repeat(batch.first == 0, np.diff(batch.starts))
        assert ((own[1] == np.float32(ALONE)).all(axis=1) == alone).all()
