"""CompileTriton: a kernel that is written in Triton → its machine code for one GPU architecture.

Writes `cubin`, whose function is called `name`, and `launch` (see `backends.cuda.device_functions`), with the numbers
that a call of it ends with. `kernel` is a plug-in, the `@triton.jit` function. TVM, torch and a GPU are not needed.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mlcbuild.compiler.backends.cuda import architectures
from mlcbuild.compiler.backends.cuda.device_functions import DeviceFunction, to_json
from mlcbuild.errors import StageError

WARP = 32
_TYPES = {"i32": ("int", 32, 1), "i64": ("int", 64, 1), "fp32": ("float", 32, 1)}
_POINTER = ("handle", 64, 1)
_LAUNCH_PARAMETERS = ("blockIdx.x", "blockIdx.y", "threadIdx.x", "tirx.use_dyn_shared_memory")
# Lines of a source would be in the machine code. Sums and products are fused, as CUDA's compiler does.
_SETTINGS = {"TRITON_DISABLE_LINE_INFO": "1", "TRITON_DEFAULT_FP_FUSION": "1"}


def run(
    *,
    cubin: Path,
    launch: Path,
    kernel: Any,
    name: str,
    signature: Sequence[Sequence[str]],
    aligned: Sequence[str],
    constants: Sequence[Sequence[Any]],
    warps: int,
    stages: int,
    arch: str,
) -> None:
    """The parameters are those of `backends.cuda.triton_launch.TritonKernel`.

    Raises StageError for an unknown architecture, and for a kernel that does not compile or wants memory of the host.
    """
    if (wrong := architectures.problem(arch)) is not None:
        raise StageError(wrong[0], advice=wrong[1])
    types, values = {each[0]: each[1] for each in signature}, {each[0]: each[1] for each in constants}
    with tempfile.TemporaryDirectory(dir=cubin.parent) as folder:
        os.environ.update(_SETTINGS, TRITON_CACHE_DIR=folder, TRITON_HOME=folder)
        compiled = _compiled(kernel, name, types, aligned, values, warps, stages, architectures.number(arch))
    made = compiled.metadata
    if made.global_scratch_size or made.profile_scratch_size:
        raise StageError(f"{name} wants memory of the host, {made.global_scratch_size} bytes a block: none is given")
    arguments = [_POINTER if kind.startswith("*") else _TYPES[kind] for kind in types.values()]
    function = DeviceFunction(
        name=name,
        argument_types=(*arguments, _POINTER, _POINTER),
        launch_parameters=_LAUNCH_PARAMETERS,
        argument_tags=(0,) * (len(arguments) + 2),
    )
    numbers = {name: (made.num_warps * WARP, made.shared)}
    launch.write_text(to_json([function], numbers=numbers), encoding="utf-8")
    cubin.write_bytes(compiled.asm["cubin"])


def _compiled(
    kernel: Any,
    name: str,
    types: Mapping[str, str],
    aligned: Sequence[str],
    constants: Mapping[str, Any],
    warps: int,
    stages: int,
    arch: int,
) -> Any:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    order = list(types) + list(constants)
    unknown = sorted(set(order) ^ set(kernel.arg_names))
    if unknown:
        raise StageError(f"{kernel.__name__} and its signature differ in {', '.join(unknown)}")
    kernel._repr = lambda _specialization: name  # the function's name in the machine code
    source = ASTSource(
        fn=kernel,
        signature={
            argument: "constexpr" if argument in constants else types[argument] for argument in kernel.arg_names
        },
        constexprs={(kernel.arg_names.index(argument),): value for argument, value in constants.items()},
        attrs={(kernel.arg_names.index(argument),): [["tt.divisibility", 16]] for argument in aligned},
    )
    try:
        return triton.compile(
            source, target=GPUTarget("cuda", arch, WARP), options={"num_warps": warps, "num_stages": stages}
        )
    except Exception as error:  # Triton has no class of its own for all that a source may have
        raise StageError(f"{kernel.__name__} does not compile for sm_{arch}: {error}") from error
