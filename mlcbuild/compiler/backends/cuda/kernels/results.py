"""What becomes of an element of a product: it is stored, or goes through the element-wise block that follows."""

from __future__ import annotations

import tvm
import tvm.tirx.script.builder as T  # noqa: N812
import tvm_ffi
from tvm import tirx

from mlcbuild.compiler.kernels.building import Expression, store
from mlcbuild.compiler.kernels.matmul_pattern import MatrixProduct


def store_result(product: MatrixProduct, value: Expression, *, row: Expression, n: Expression) -> None:
    """Stores `value`, float32, which is the product's element at `row` and `n`."""
    made = T.Cast(str(product.output.dtype), value)
    epilogue = product.epilogue
    if epilogue is None:
        store(product.output, made, *product.output_at(row, n))
        return
    realized = epilogue.at(row, n)
    places = {axis.var: place for axis, place in zip(realized.block.iter_vars, realized.iter_values, strict=True)}

    def load(element: tvm.ir.TensorLoad) -> Expression:
        return made if element.source.same_as(product.output) else element

    T.add_to_parent(
        tvm_ffi.structural_map(
            realized.block.body,
            [(tvm.ir.TensorLoad, load), (tirx.Var, lambda variable: places.get(variable, variable))],
        )
    )
