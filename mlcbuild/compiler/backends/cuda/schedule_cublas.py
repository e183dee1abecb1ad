"""The schedule rules for NVIDIA GPUs where a platform takes products of cuBLAS."""

from __future__ import annotations

import dataclasses

from tvm import tirx

from mlcbuild.compiler.backends.cuda import schedule
from mlcbuild.compiler.backends.cuda.kernels.cublas_product import calls_cublas, schedule_cublas_product
from mlcbuild.compiler.backends.cuda.libraries import cublas_interface


def language(func: tirx.PrimFunc) -> str:
    """`cublas` for a kernel that calls it, whatever else it starts."""
    return cublas_interface.NAME if calls_cublas(func) else schedule.language(func)


SCHEDULING = dataclasses.replace(
    schedule.SCHEDULING, rules=(schedule_cublas_product, *schedule.SCHEDULING.rules), language=language
)
