"""The canonical form of kernels: equal bodies give equal bytes, and nothing else does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import te, tirx
from tvm.script import ir as I  # noqa: N812
from tvm.script import tirx as T  # noqa: N812

from mlcbuild.compiler.passes.canonical_kernel import CanonicalKernel, canonicalize, load_kernel
from mlcbuild.errors import InternalError


def _kernel(
    *, names: tuple[str, str, str, str] = ("x", "y", "out", "n"), constant: float = 1.5, swapped: bool = False
) -> tirx.PrimFunc:
    """(x + constant) * y for matrices (n, 8)."""
    left, right, result, size = names
    n = tirx.Var(size, "int64")
    x, y = te.placeholder((n, 8), "float32", name=left), te.placeholder((n, 8), "float32", name=right)
    more = te.compute((n, 8), lambda i, j: x[i, j] + constant, name=f"{left}_more")
    product = te.compute((n, 8), lambda i, j: more[i, j] * y[i, j], name=result)
    return te.create_prim_func([y, x, product] if swapped else [x, y, product])


_NAME = st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True)


@settings(max_examples=15, deadline=None)
@given(names=st.tuples(_NAME, _NAME, _NAME, _NAME))
def test_names_do_not_count(names: tuple[str, str, str, str]) -> None:
    assert canonicalize(_kernel(names=names)) == canonicalize(_kernel())


def test_attributes_that_say_nothing_of_the_computation_do_not_count() -> None:
    plain = _kernel()
    target = tvm.target.Target({"kind": "llvm", "mcpu": "x86-64-v3", "mtriple": "x86_64-linux-gnu"})
    dressed = plain.with_attrs({"global_symbol": "fused_add_multiply7", "op_pattern": 2, "target": target})
    assert canonicalize(dressed) == canonicalize(plain)


def test_what_is_computed_counts() -> None:
    kernels = [
        _kernel(),
        _kernel(constant=1.25),
        _kernel(swapped=True),
        _kernel().with_attr("tirx.is_scheduled", True),
        te.create_prim_func([x := te.placeholder((4, 8), "float32"), te.compute((4, 8), lambda i, j: x[i, j])]),
        te.create_prim_func([x := te.placeholder((4, 8), "float16"), te.compute((4, 8), lambda i, j: x[i, j])]),
    ]
    assert len({canonicalize(kernel).name for kernel in kernels}) == len(kernels)


def test_the_form_of_a_form_is_itself() -> None:
    kernel = canonicalize(_kernel())
    assert canonicalize(load_kernel(kernel.data)["kernel"]) == kernel


def test_sharing_of_expressions_does_not_count() -> None:
    """i + 1 as one object in two places, or as two equal objects."""

    def build(shared: bool) -> tirx.PrimFunc:
        x = tirx.decl_buffer((8,), "float32", name="x")
        i = tirx.Var("i", "int32")
        index = i + 1
        other = index if shared else i + 1
        body = tirx.For(i, 0, 7, tirx.ForKind.SERIAL, tirx.BufferStore(x, x[other] * 2, [index]))
        return tirx.PrimFunc([x], body)

    assert canonicalize(build(True)) == canonicalize(build(False))


def test_source_locations_do_not_get_in() -> None:
    @T.prim_func(s_tir=True)
    def kernel(x: T.Buffer((8,), "float32")) -> None:  # type: ignore[valid-type]
        for i in range(8):
            with T.sblock("double"):
                place = T.axis.spatial(8, i)
                x[place] = x[place] * 2.0

    assert "ir.Span" in tvm.ir.save_json(kernel)
    data = canonicalize(kernel).data
    assert b"Span" not in data
    assert b"test_canonical" not in data


def test_a_kernel_takes_along_what_it_calls() -> None:
    @I.ir_module
    class Module:
        @T.prim_func(private=True)
        def helper(x: T.Buffer((8,), "float32")) -> None:  # type: ignore[valid-type]  # noqa: N805
            for i in range(8):
                x[i] = x[i] + 1.0

        @T.prim_func
        def outer(x: T.Buffer((8,), "float32")) -> None:  # type: ignore[valid-type]  # noqa: N805
            Module.helper(x.data)

    module: Any = Module  # which the decorator has made of the class
    kernel = canonicalize(module["outer"], module=module)
    functions = {str(variable.name_hint) for variable, _ in load_kernel(kernel.data).functions_items()}
    assert functions == {"kernel", "callee0"}
    changed = tvm.IRModule(dict(module.functions_items()))
    changed.update_func(module.get_global_var("helper"), module["helper"].with_attr("tirx.noalias", True))
    assert canonicalize(changed["outer"], module=changed).name != kernel.name
    with pytest.raises(InternalError, match="helper"):
        canonicalize(module["outer"])


def test_loops_of_any_depth_are_walked() -> None:
    x = tirx.decl_buffer((1,), "float32", name="x")
    body: Any = tirx.BufferStore(x, tirx.const(0, "float32"), [0])
    for number in range(400):
        body = tirx.For(tirx.Var(f"i{number}", "int32"), 0, 1, tirx.ForKind.SERIAL, body)
    assert canonicalize(tirx.PrimFunc([x], body)).name.startswith("kernel_")


def test_a_name_that_is_not_that_of_the_bytes_is_refused() -> None:
    kernel = canonicalize(_kernel())
    with pytest.raises(ValueError, match="kernel_0"):
        CanonicalKernel(name="kernel_0", data=kernel.data)
    json.loads(kernel.data)


@pytest.mark.slow
def test_every_process_gives_the_same_bytes() -> None:
    program = (
        "import sys\n"
        "sys.modules['torch'] = None  # tvm-ffi would import it, which takes seconds\n"
        "from tvm import te\n"
        "from mlcbuild.compiler.passes.canonical_kernel import canonicalize\n"
        "x = te.placeholder((4, 8), 'float32', name='x')\n"
        "print(canonicalize(te.create_prim_func([x, te.compute((4, 8), lambda i, j: x[j % 4, i] + 1)])).name)\n"
    )
    names = {
        subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
        ).stdout
        for seed in (0, 1)
    }
    assert len(names) == 1
