"""How a model's layers compute with stored weights: the reading side of a scheme, on TVM's `relax.frontend.nn`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from tvm import relax, te, tirx
from tvm.relax.frontend import nn

from mlcbuild.compiler.kernel_attributes import RESTORES_WEIGHTS
from mlcbuild.compiler.quantization.scheme import QuantizationScheme, Weight


class Reader(ABC):
    """Reads the tensors that a scheme stores.

    `stored` are always those of `scheme.stored(weight)`, in its order. A scheme says how a matrix is restored; one that
    computes a product in another way, such as in integers, says that instead.
    """

    def __init__(self, scheme: QuantizationScheme) -> None:
        self.scheme = scheme

    def of(self, weight: Weight) -> Reader:  # noqa: ARG002
        """The reader of a weight: this one, unless a scheme is made of several."""
        return self

    def layer_kind(self, name: str) -> str:  # noqa: ARG002
        """A text that is equal for layers whose weights are read alike, by the layer's name, such as
        `model.layers.0`."""
        return ""

    @abstractmethod
    def restored(self, weight: Weight, stored: Sequence[nn.Tensor]) -> nn.Tensor:
        """The matrix (out, in) in the model's dtype. Later passes restore it inside whatever kernel reads it."""

    def activations(self, weight: Weight, stored: Sequence[nn.Tensor], x: nn.Tensor) -> nn.Tensor:  # noqa: ARG002
        """x (…, in) as the matrix is multiplied by it, in x's dtype: x itself, unless the scheme rounds it."""
        return x

    def product(
        self, weight: Weight, stored: Sequence[nn.Tensor], x: nn.Tensor, *, out_dtype: str | None = None
    ) -> nn.Tensor:
        """x W^T: (…, in) → (…, out), of `out_dtype`, else of x's dtype."""
        x = self.activations(weight, stored, x)
        return nn.op.matmul(x, nn.op.permute_dims(self.restored(weight, stored)), out_dtype=out_dtype)

    def rows(self, weight: Weight, stored: Sequence[nn.Tensor], indices: nn.Tensor) -> nn.Tensor:
        """Rows of the matrix by number: (n,) int32 → (n, in)."""
        return take(self.restored(weight, stored), indices, axis=0)


def take(table: nn.Tensor, indices: nn.Tensor, *, axis: int) -> nn.Tensor:
    """Rows by number along an axis; a number out of range gives the nearest row, never memory outside."""
    return nn.op.wrap_nested(relax.op.take(table._expr, indices._expr, axis=axis, mode="clip"), "take")


def shape_of(*sizes: int) -> tuple[tirx.IntImm, ...]:
    """A shape of a kernel. Relax counts in int64; a plain int would become an int32."""
    return tuple(tirx.IntImm("int64", size) for size in sizes)


def restored_by(kernel: tirx.PrimFunc, weight: Weight, stored: Sequence[nn.Tensor], dtype: str) -> nn.Tensor:
    """The matrix of a weight by a `restoring_kernel` for what is stored."""
    matrix = nn.Tensor.placeholder(weight.shape, dtype)
    return nn.op.tensor_ir_op(kernel, "dequantize", list(stored), matrix)


def restoring_kernel(stored: Sequence[te.Tensor], matrix: te.Tensor) -> object:
    """The kernel that computes a matrix from what is stored for it, marked so that it is fused into its readers."""
    function = te.create_prim_func([*stored, matrix])
    return function.without_attr("global_symbol").with_attr({"tirx.noalias": True, RESTORES_WEIGHTS: True})
