"""`exported` (of jax.export) → `executable`: XLA's program for this processor, or for a GPU that need not be there.

The file is a pickle of what jax.experimental.serialize_executable.serialize returns: XLA's own bytes, and the trees of
inputs and outputs. Needs jax and flatbuffers, and for GPUs jax's plug-in for CUDA.
"""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

_INSTRUCTIONS = {"x86-64": "SSE4_2", "x86-64-v2": "SSE4_2", "x86-64-v3": "AVX2", "x86-64-v4": "AVX512"}


def for_processor(*, exported: Path, executable: Path, level: str, threads: int) -> None:
    """`level` is that of the processor that it may use the instructions of; "" is that of this machine."""
    # How many threads its work is divided for. XLA asks the machine where these are not set.
    os.environ |= {"PJRT_NPROC": str(threads), "NPROC": str(threads)}
    if level in _INSTRUCTIONS:
        os.environ["XLA_FLAGS"] = f"--xla_cpu_max_isa={_INSTRUCTIONS[level]}"
    _start("cpu")
    import jax

    whole = _read(exported)
    executable.write_bytes(_compiled(whole, _arguments(whole, None), jax.__version__))


def for_gpu(*, exported: Path, executable: Path, gpu: Path, platform: str) -> None:
    """`gpu` is XLA's description of the GPU, a GpuTargetConfig as text; `platform` is JAX's word for its kind."""
    os.environ["JAX_SKIP_CUDA_CONSTRAINTS_CHECK"] = "1"  # It looks for cuDNN, which compiling does not need.
    _start(f"cpu,{platform}")
    import jax
    from jax_plugins import xla_cuda13

    # It looks for its library where links lead, and an environment's files are links.
    library = Path(xla_cuda13.__file__).parent / "xla_cuda_plugin.so"
    xla_cuda13._get_library_path = lambda: library
    from jax.experimental import topologies
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    try:
        devices = topologies.get_topology_desc(
            topology_name="", platform=platform, topology="1x1x1", target_config=gpu.read_text(encoding="utf-8")
        ).devices
    except Exception as error:
        raise SystemExit(f"{gpu.name} describes no GPU that XLA knows: {_first_line(error)}") from None
    whole = _read(exported)
    everywhere = NamedSharding(Mesh(devices, ("device",)), PartitionSpec())
    executable.write_bytes(_compiled(whole, _arguments(whole, everywhere), jax.__version__))


def _start(platforms: str) -> None:
    """Before jax is imported. Its own cache would hold what this compiles."""
    os.environ |= {"JAX_PLATFORMS": platforms, "JAX_ENABLE_COMPILATION_CACHE": "0"}


def _read(exported: Path) -> Any:
    from jax import export

    return export.deserialize(bytearray(exported.read_bytes()))


def _arguments(whole: Any, sharding: Any) -> Any:
    import jax

    shapes = [jax.ShapeDtypeStruct(each.shape, each.dtype, sharding=sharding) for each in whole.in_avals]
    return jax.tree.unflatten(whole.in_tree, shapes)


def _compiled(whole: Any, arguments: Any, version: str) -> bytes:
    import jax
    from jax.experimental import serialize_executable

    positional, named = arguments
    try:
        compiled = jax.jit(whole.call).lower(*positional, **named).compile()
    except Exception as error:
        raise SystemExit(f"XLA of jax {version} cannot compile the function: {_first_line(error)}") from None
    return pickle.dumps(serialize_executable.serialize(compiled), protocol=5)


def _first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
