"""Kernels that are written in Triton: what is compiled, and how a kernel of TVM's starts it.

A kernel in TIR calls a Triton kernel by a packed call of its name, with the arguments and the grid. How many threads a
block has, and how much shared memory, only Triton's compiler knows: CompileTriton writes it, and CompileKernel puts it
behind the arguments of each call (`with_numbers`). The name tells everything of the kernel but its source, so that a
library may have one kernel in several forms.

Triton's kernels take two pointers behind their own arguments, to memory for all blocks, which is none here:
CompileTriton refuses kernels that ask for some.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

from mlcbuild.compiler.kernel_attributes import DEVICE_KERNELS
from mlcbuild.compiler.kernels.building import Buffer, Expression
from mlcbuild.errors import InternalError


@dataclass(frozen=True, slots=True, kw_only=True)
class TritonKernel:
    """A `@triton.jit` function, `package.module:name`, and the form in which it is compiled.

    `signature` are the types of its arguments in Triton's words, such as `*fp16` or `i32`, by their names and in their
    order; pointers of the names in `aligned` are divisible by 16. `constants` are the values of the others.
    """

    function: str
    signature: tuple[tuple[str, str], ...]
    aligned: tuple[str, ...]
    constants: tuple[tuple[str, int | float], ...]
    warps: int
    stages: int

    def to_json(self) -> dict[str, Any]:
        return json.loads(json.dumps(asdict(self)))  # type: ignore[no-any-return]

    @property
    def symbol(self) -> str:
        """The name of the device function."""
        text = json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"))
        return f"triton_{self.function.partition(':')[2]}_{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def launch(kernel: TritonKernel, arguments: Sequence[Expression], grid: tuple[Expression, Expression]) -> tirx.Stmt:
    """The statement that starts a kernel, on the host."""
    nothing = tirx.reinterpret("handle", tirx.const(0, "uint64"))
    return tirx.Evaluate(tirx.call_packed(kernel.symbol, *arguments, nothing, nothing, *grid))


def address(buffer: Buffer) -> Expression:
    """The pointer to a buffer's first element."""
    return tirx.address_of(buffer[(0,) * len(buffer.shape)])


def naming(function: tirx.PrimFunc, kernels: Sequence[TritonKernel]) -> tirx.PrimFunc:
    """A kernel that says which Triton kernels it starts; Partition reads it."""
    listed = [{"name": kernel.symbol, **kernel.to_json()} for kernel in kernels]
    return function.with_attr(DEVICE_KERNELS, json.dumps(listed, sort_keys=True, separators=(",", ":")))


def with_numbers(module: tvm.IRModule, numbers: Mapping[str, Sequence[int]]) -> tvm.IRModule:
    """A scheduled kernel whose calls of these functions have the numbers that follow the grid."""
    left = dict(numbers)

    def completed(call: tvm.ir.Call) -> tvm.ir.Call:
        if call.op.same_as(tvm.ir.Op.get("tirx.tvm_call_packed")) and isinstance(call.args[0], tvm.ir.StringImm):
            name = str(call.args[0].value)
            if name in numbers:
                left.pop(name, None)
                return tirx.call_packed(*call.args, *(tirx.const(number, "int32") for number in numbers[name]))
        return call

    made = {
        variable: function.with_body(tvm_ffi.structural_map(function.body, (tvm.ir.Call, completed)))
        if isinstance(function, tirx.PrimFunc)
        else function
        for variable, function in module.functions_items()
    }
    if left:
        raise InternalError(f"the kernel starts no {', '.join(sorted(left))}")
    return tvm.IRModule(made, attrs=module.attrs)
