"""Products with experts' matrices by Triton's interpreter, on the CPU, started as in a library, against NumPy in
float64. `test_triton_experts.py` runs it in a process of its own."""

from __future__ import annotations

import os
import sys

os.environ["TRITON_INTERPRET"] = "1"

import numpy as np
import tvm
from tvm import relax

from mlcbuild.compiler.backends.cuda.kernels import triton_expert_products
from mlcbuild.compiler.backends.cuda.passes.dispatch_triton_products import SCHEMES, numbers_of
from mlcbuild.compiler.models.parameter_role import ParameterRole
from mlcbuild.compiler.quantization.float8.scheme import Float8Scheme
from mlcbuild.compiler.weights.tensor import dtype_of
from tests.compiler import schemes
from tests.compiler.backends.cuda.triton_host import Array, run_host
from tests.compiler.pipeline import CUDA_TARGET
from tests.compiler.schemes import matrix

_EXPERTS, _COLUMNS, _INNER, _CHOICES = 3, 150, 160, 2


def _type(array: Array) -> relax.TensorType:
    return relax.TensorType(array.shape, str(array.dtype))


def largest_error(scheme: Float8Scheme, tokens: int, arch: str, *, of_rows: bool, sorted_rows: bool) -> float:
    """The largest difference of a product, relative to the largest result: of rows of their own, or of tokens."""
    numbers, random = numbers_of(scheme), np.random.default_rng(tokens)
    rows = tokens * _CHOICES
    shape = (_EXPERTS, _COLUMNS, _INNER)
    weights = random.standard_normal(shape).astype(dtype_of(scheme.model_dtype))
    stored: tuple[Array, ...] = schemes.encoder(scheme).encode(matrix(shape, role=ParameterRole.EXPERTS), weights)
    chosen = random.integers(0, _EXPERTS, rows, dtype=np.int32)
    order = np.argsort(chosen, kind="stable") if sorted_rows else np.arange(rows)
    given = (tokens, _CHOICES, _INNER) if of_rows else (tokens, _INNER)
    x = (random.standard_normal(given) * 16).astype(dtype_of(scheme.format.dtype))
    of_x = x.astype(np.float64).reshape(-1, _INNER)
    groups = numbers.groups(_INNER)
    operands: dict[str, Array] = {"numbers": x.astype(dtype_of(numbers.of_rows(arch)))}
    if numbers.scaled:
        operands["scales"] = random.random((groups, len(of_x)), dtype=np.float32)
        of_x = (
            of_x
            * np.repeat(operands["scales"].T, -(-_INNER // groups) if groups == 1 else numbers.group, 1)[:, :_INNER]
        )
    operands |= dict(zip(("weights", "weight_scales"), stored, strict=False))
    operands["experts"] = chosen[order].reshape(tokens, _CHOICES)
    if sorted_rows:
        operands["sources"] = order.astype(np.int32).reshape(tokens, _CHOICES)
    output = np.full((tokens, _CHOICES, _COLUMNS), 7, np.float32)
    target = tvm.target.Target({**CUDA_TARGET, "arch": arch})
    kernel = triton_expert_products.product(
        [(name, _type(array)) for name, array in operands.items()], _type(output), numbers, target
    )
    found = run_host(kernel, [*operands.values(), output])[-1].reshape(rows, _COLUMNS)
    restored = stored[0].astype(np.float64)
    if scheme.scales is not None:
        rows_of, columns_of = scheme.scales.rows or _COLUMNS, scheme.scales.columns or _INNER
        scales = stored[1].astype(np.float64).reshape(_EXPERTS, -(-_COLUMNS // rows_of), -(-_INNER // columns_of))
        restored *= np.repeat(np.repeat(scales, rows_of, 1), columns_of, 2)[:, :_COLUMNS, :_INNER]
    source = np.arange(rows) if of_rows else order // _CHOICES
    exact = np.einsum("rk,rnk->rn", of_x[source], restored[chosen[order]])
    return float(np.abs(found - exact).max() / np.abs(exact).max())


def main(*, everything: bool) -> None:
    for scheme in SCHEMES if everything else (SCHEMES[0], SCHEMES[3]):
        for arch in ("sm_80", "sm_90"):
            # One token, a run longer than a tile, and many rows.
            for tokens in (1, 20, 40, 90) if everything else (1, 20, 40):
                for of_rows in (False, True):
                    found = largest_error(scheme, tokens, arch, of_rows=of_rows, sorted_rows=tokens > 1)
                    print(scheme.name, arch, tokens, of_rows, found)
                    assert found < 3e-6, (scheme.name, arch, tokens, of_rows, found)
    for tokens in (20, 40):
        found = largest_error(SCHEMES[0], tokens, "sm_90", of_rows=True, sorted_rows=False)
        assert found < 3e-6, (tokens, found)


if __name__ == "__main__":
    main(everything=sys.argv[1:] == ["all"])
