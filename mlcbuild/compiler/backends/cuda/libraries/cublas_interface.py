"""What kernels say to cuBLAS: the function that `libraries.cublas` defines, and the memory that it wants."""

from __future__ import annotations

NAME = "cublas"
MATMUL = "mlcbuild_cublas_matmul"
WORKSPACE_BYTES = 32 << 20  # what NVIDIA advises for its GPUs since sm_90
