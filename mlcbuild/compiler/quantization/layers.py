"""Linear and embedding layers whose matrices are stored as a scheme says.

Parameters are named as MLC-LLM names them: `weight` where a matrix is stored as it is, else `q_weight`
(out, in / 8 for four bits) of uint32 and `q_scale` (out, in / group) of the model's dtype. A quantized
matrix is restored by a kernel of its own, `dequantize`; later passes fuse it into whatever reads it.
"""

from __future__ import annotations

import functools

from tvm import relax, te, tirx
from tvm.relax.frontend import nn

from mlcbuild.compiler.quantization.scheme import GroupQuantization, QuantizationScheme
from mlcbuild.errors import StageError


def take(table: nn.Tensor, indices: nn.Tensor, *, axis: int) -> nn.Tensor:
    """Rows by number along an axis; a number out of range gives the nearest row, never memory outside."""
    return nn.op.wrap_nested(relax.op.take(table._expr, indices._expr, axis=axis, mode="clip"), "take")


class QuantizedMatrix(nn.Module):  # type: ignore[misc]
    """A matrix (rows, columns), quantized in groups along its columns."""

    def __init__(self, rows: int, columns: int, *, group: GroupQuantization, dtype: str, name: str) -> None:
        if columns % group.group_size:
            raise StageError(
                f"{name} has {columns} columns, which groups of {group.group_size} do not divide",
                advice=("choose a quantization without groups, such as q0f16 or q0f32",),
            )
        self.rows = rows
        self.columns = columns
        self.group = group
        self.dtype = dtype
        words = columns // group.group_size * group.words_per_group
        self.q_weight = nn.Parameter((rows, words), group.storage_dtype)
        self.q_scale = nn.Parameter((rows, columns // group.group_size), dtype)

    def restored(self) -> nn.Tensor:
        """The matrix (rows, columns) in the model's dtype: (integer - max_int) * scale."""
        kernel = _dequantize_kernel(self.rows, self.columns, self.group, self.dtype)
        shape = nn.Tensor.placeholder((self.rows, self.columns), self.dtype)
        return nn.op.tensor_ir_op(kernel, "dequantize", [self.q_weight, self.q_scale], shape)


@functools.cache
def _dequantize_kernel(rows: int, columns: int, group: GroupQuantization, dtype: str) -> tirx.PrimFunc:
    """The kernel from words and scales to the matrix, made once for all layers of the same shape."""
    per_word = group.elements_per_word
    groups = columns // group.group_size
    words = te.placeholder(_shape(rows, groups * group.words_per_group), group.storage_dtype, "words")
    scales = te.placeholder(_shape(rows, groups), dtype, "scales")
    mask = tirx.const((1 << group.bits) - 1, group.storage_dtype)
    offset = tirx.const(group.max_int, dtype)

    def element(row: tirx.Var, column: tirx.Var) -> tirx.Expr:
        word = words[row, column // per_word]
        shift = (column % per_word * group.bits).astype(group.storage_dtype)
        integer = tirx.bitwise_and(tirx.shift_right(word, shift), mask).astype(dtype)
        return (integer - offset) * scales[row, column // group.group_size]

    matrix = te.compute(_shape(rows, columns), element, name="dequantize")
    function = te.create_prim_func([words, scales, matrix])
    return function.without_attr("global_symbol").with_attr("tirx.noalias", True)


def _shape(*sizes: int) -> tuple[tirx.IntImm, ...]:
    """Relax counts in int64; a plain int would become an int32."""
    return tuple(tirx.IntImm("int64", size) for size in sizes)


class Linear(nn.Module):  # type: ignore[misc]
    """y = x W^T + b for x (..., in), W (out, in), b (out,); y is of `out_dtype`, else of x's dtype."""

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        scheme: QuantizationScheme,
        name: str,
        bias: bool = False,
        is_head: bool = False,
    ) -> None:
        group = scheme.group
        if group is not None and is_head and not group.quantize_final_fc:
            group = None
        self.quantized = group is not None
        if group is None:
            self.weight = nn.Parameter((out_features, in_features), scheme.model_dtype)
        else:
            matrix = QuantizedMatrix(out_features, in_features, group=group, dtype=scheme.model_dtype, name=name)
            # The parameters are also attributes of the layer itself, which gives them MLC-LLM's names.
            self.q_weight = matrix.q_weight
            self.q_scale = matrix.q_scale
            self._restore = matrix.restored
        self.bias = nn.Parameter((out_features,), scheme.model_dtype) if bias else None

    def forward(self, x: nn.Tensor, out_dtype: str | None = None) -> nn.Tensor:
        matrix = self._restore() if self.quantized else self.weight
        y = nn.op.matmul(x, nn.op.permute_dims(matrix), out_dtype=out_dtype)
        return y if self.bias is None else y + self.bias


class Embedding(nn.Module):  # type: ignore[misc]
    """Rows of a table (vocabulary, hidden) by token; the same table can serve as the language model's
    head."""

    def __init__(self, vocabulary: int, hidden: int, *, scheme: QuantizationScheme, name: str) -> None:
        group = scheme.group if scheme.group is not None and scheme.group.quantize_embedding else None
        self.quantized = group is not None
        if group is None:
            self.weight = nn.Parameter((vocabulary, hidden), scheme.model_dtype)
        else:
            matrix = QuantizedMatrix(vocabulary, hidden, group=group, dtype=scheme.model_dtype, name=name)
            self.q_weight = matrix.q_weight
            self.q_scale = matrix.q_scale
            self._restore = matrix.restored

    def _table(self) -> nn.Tensor:
        return self._restore() if self.quantized else self.weight

    def forward(self, tokens: nn.Tensor) -> nn.Tensor:
        """(n,) int32 → (n, hidden)."""
        return take(self._table(), tokens, axis=0)

    def logits(self, hidden: nn.Tensor, out_dtype: str | None = None) -> nn.Tensor:
        """(..., hidden) → (..., vocabulary): the head of a model with tied embeddings."""
        return nn.op.matmul(hidden, nn.op.permute_dims(self._table()), out_dtype=out_dtype)
