"""Triton, which compiles kernels for GPUs without a driver, a GPU or a CUDA toolkit: it brings its own assembler."""

from __future__ import annotations

from mlcbuild.toolchains.toolchain import DistributionToolchain

TOOLCHAIN = DistributionToolchain(
    name="triton",
    is_optional=True,
    distributions=("triton",),
    purpose='kernels = "triton"',
    advice=('run: python -m pip install "mlcbuild[triton]"',),
    preload=("triton", "triton.compiler", "triton.backends.compiler"),
    preloaded_for=("triton",),
)
