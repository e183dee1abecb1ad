"""NumPy, and the distributions that import it: stages that read and write weights use them."""

from __future__ import annotations

from mlcbuild.toolchains.toolchain import DistributionToolchain

TOOLCHAIN = DistributionToolchain(
    name="numpy",
    distributions=("numpy",),
    purpose="reading and quantizing weights",
    advice=("install mlcbuild again, with what it depends on: python -m pip install mlcbuild",),
    preload=("numpy",),
    preloaded_for=("gguf", "ml-dtypes", "numpy", "safetensors"),
)
