"""Products of 8 bits by Triton's interpreter, on the CPU, started as in a library, against NumPy in float64.
`test_triton_products.py` runs it in a process of its own."""

from __future__ import annotations

import os
import sys

os.environ["TRITON_INTERPRET"] = "1"

import numpy as np
import tvm
from tvm import relax

from mlcbuild.compiler.backends.cuda.kernels import triton_products
from mlcbuild.compiler.backends.cuda.kernels.triton_products import Numbers
from mlcbuild.compiler.backends.cuda.passes.dispatch_triton_products import BYTES, SCHEMES, numbers_of
from mlcbuild.compiler.quantization.float8.scheme import Float8Scheme
from mlcbuild.compiler.weights.tensor import dtype_of
from tests.compiler import rounded_activations, schemes
from tests.compiler.backends.cuda.triton_host import Array, run_host
from tests.compiler.pipeline import CUDA_TARGET
from tests.compiler.schemes import matrix

_COLUMNS, _INNER = 200, 320  # no multiples of a tile or a group


def _type(array: Array) -> relax.TensorType:
    return relax.TensorType(array.shape, str(array.dtype))


def _product(operands: dict[str, Array], numbers: Numbers, target: tvm.target.Target) -> Array:
    rows = operands["numbers"].shape[:-1]
    output = np.full((*rows, _COLUMNS), 7, np.float32)
    types = [(name, _type(array)) for name, array in operands.items()]
    kernel = triton_products.product(types, _type(output), numbers, target)
    return run_host(kernel, [*operands.values(), output])[-1]


def of_floats(scheme: Float8Scheme, rows: int, arch: str, *, static: bool) -> float:
    """The largest difference of a product, relative to the largest result."""
    target = tvm.target.Target({**CUDA_TARGET, "arch": arch})
    random, numbers = np.random.default_rng(rows), numbers_of(scheme)
    dtype = dtype_of(scheme.model_dtype)
    weights = random.standard_normal((_COLUMNS, _INNER)).astype(dtype)
    parameter = matrix(weights.shape)
    stored: tuple[Array, ...] = schemes.encoder(scheme).encode(parameter, weights)
    x = (random.standard_normal((1, rows, _INNER)) * np.exp(random.uniform(-3, 3, (rows, 1)))).astype(dtype)
    kept = [np.full_like(stored[2], 0.01)] if static else []
    kernel, types = triton_products.quantize(_type(x), numbers, target, static=static)
    made = [np.zeros([int(size) for size in type_.shape], dtype_of(str(type_.dtype))) for type_ in types]
    made = run_host(kernel, [x, *kept, *made])[1 + len(kept) :]
    found = made[0].astype(np.float32)
    if numbers.scaled:
        group = numbers.group or _INNER
        found *= np.repeat(made[1].T, group, axis=1)[:, :_INNER]
    wide = x.astype(np.float32)
    expected = rounded_activations.rounded(wide, scheme, kept[0] if static else None)
    np.testing.assert_array_equal(found, expected)
    operands: dict[str, Array] = dict(zip(("numbers", "scales"), made, strict=False))
    operands |= dict(zip(("weights", "weight_scales"), stored, strict=False))
    result = _product(operands, numbers, target)
    restored = stored[0].astype(np.float64)
    if scheme.scales is not None:
        rows_of, columns_of = scheme.scales.rows or _COLUMNS, scheme.scales.columns or _INNER
        scales = stored[1].astype(np.float64).reshape(-(-_COLUMNS // rows_of), -(-_INNER // columns_of))
        restored *= np.repeat(np.repeat(scales, rows_of, 0), columns_of, 1)[:_COLUMNS, :_INNER]
    exact = expected.astype(np.float64) @ restored.T
    return float(np.abs(result - exact).max() / np.abs(exact).max())


def of_bytes(rows: int) -> float:
    random = np.random.default_rng(rows)
    operands: dict[str, Array] = {
        "numbers": random.integers(-127, 128, (1, rows, _INNER), dtype=np.int8),
        "scales": random.random((1, rows, 1), dtype=np.float32),
        "weights": random.integers(-127, 128, (_COLUMNS, _INNER), dtype=np.int8),
        "weight_scales": random.random((_COLUMNS, 1), dtype=np.float32),
    }
    result = _product(operands, BYTES, tvm.target.Target(CUDA_TARGET))
    x, scales, weights, weight_scales = (array.astype(np.float64) for array in operands.values())
    exact = (x @ weights.T) * scales * weight_scales.T
    return float(np.abs(result - exact).max() / np.abs(exact).max())


def main(*, everything: bool) -> None:
    counts = (1, 5, 16, 40, 64, 70, 150) if everything else (5, 70)
    for scheme in SCHEMES:
        for arch in ("sm_80", "sm_90"):
            for rows in counts if everything or arch == "sm_90" else counts[:1]:
                for static in (False, True) if scheme.stores_static_scales else (False,):
                    found = of_floats(scheme, rows, arch, static=static)
                    print(scheme.name, arch, rows, static, found)
                    assert found < 2e-6, (scheme.name, arch, rows, static, found)
    for rows in counts:
        found = of_bytes(rows)
        print("bytes", rows, found)
        assert found < 1e-6, (rows, found)


if __name__ == "__main__":
    main(everything=sys.argv[1:] == ["all"])
