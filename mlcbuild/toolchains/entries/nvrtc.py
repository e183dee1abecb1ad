"""NVRTC, which compiles CUDA C++ for a GPU without a driver, a GPU or a CUDA toolkit."""

from __future__ import annotations

from mlcbuild.toolchains.toolchain import DistributionToolchain

_TRIAL = """
import json, time
began = time.perf_counter()
from mlcbuild.compiler.backends.cuda.nvrtc import compile_text
code = compile_text('extern "C" __global__ void doctor(float *x) { x[threadIdx.x] += 1.0f; }', "sm_90")
assert code.startswith(b"\\x7fELF"), code[:4]
print(json.dumps({"done": "compiled a kernel for sm_90", "seconds": time.perf_counter() - began}))
"""

TOOLCHAIN = DistributionToolchain(
    name="nvrtc",
    is_optional=True,
    # NVRTC reads headers of the runtime, and those read headers of the C++ compiler.
    distributions=("nvidia-cuda-nvrtc", "nvidia-cuda-runtime", "nvidia-cuda-crt"),
    purpose="building for CUDA",
    advice=('run: python -m pip install "mlcbuild[cuda]"',),
    trial=_TRIAL,
)
