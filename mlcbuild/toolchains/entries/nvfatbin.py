"""nvFatbin, which puts device code for several GPU architectures into one file."""

from __future__ import annotations

from mlcbuild.toolchains.toolchain import DistributionToolchain

TOOLCHAIN = DistributionToolchain(
    name="nvfatbin",
    is_optional=True,
    distributions=("nvidia-nvfatbin",),
    purpose="building for CUDA",
    advice=('run: python -m pip install "mlcbuild[cuda]"',),
)
