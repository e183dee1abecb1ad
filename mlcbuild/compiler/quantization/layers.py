"""Linear and embedding layers, and experts, whose matrices are stored as a scheme says, and read by its reader.

The tensors that are stored for a matrix are the layer's parameters, by MLC-LLM's names: `weight`, or what the scheme
makes of it, such as `q_weight` and `q_scale`.
"""

from __future__ import annotations

from dataclasses import dataclass

from tvm.relax.frontend import nn

from mlcbuild.compiler.models.parameter_role import ParameterRole
from mlcbuild.compiler.quantization.reader import Reader


@dataclass(frozen=True, slots=True, kw_only=True)
class _Matrix:
    """A `quantization.scheme.Weight`."""

    name: str
    role: ParameterRole
    shape: tuple[int, ...]


class Stored(nn.Module):  # type: ignore[misc]
    """A layer with one weight. Raises StageError where the scheme cannot store it."""

    def __init__(self, shape: tuple[int, ...], *, role: ParameterRole, reader: Reader, name: str) -> None:
        self._matrix = _Matrix(name=f"{name}.weight", role=role, shape=shape)
        self._reader = reader.of(self._matrix)
        stored = self._reader.scheme.stored(self._matrix)
        self._names = tuple(tensor.name.removeprefix(f"{name}.") for tensor in stored)
        for own_name, tensor in zip(self._names, stored, strict=True):
            setattr(self, own_name, nn.Parameter(tensor.shape, tensor.dtype))

    @property
    def _stored(self) -> list[nn.Tensor]:
        return [getattr(self, name) for name in self._names]


class StoredMatrix(Stored):
    """A layer with one matrix (rows, columns)."""

    def __init__(self, rows: int, columns: int, *, role: ParameterRole, reader: Reader, name: str) -> None:
        super().__init__((rows, columns), role=role, reader=reader, name=name)

    def product(self, x: nn.Tensor, out_dtype: str | None = None) -> nn.Tensor:
        """x W^T: (…, columns) → (…, rows), of `out_dtype`, else of x's dtype."""
        return self._reader.product(self._matrix, self._stored, x, out_dtype=out_dtype)

    def rows(self, indices: nn.Tensor) -> nn.Tensor:
        """(n,) int32 → (n, columns)."""
        return self._reader.rows(self._matrix, self._stored, indices)


class Linear(StoredMatrix):
    """y = x W^T + b for x (..., in), W (out, in), b (out,); y is of `out_dtype`, else of x's dtype."""

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        reader: Reader,
        name: str,
        bias: bool = False,
        role: ParameterRole = ParameterRole.LINEAR,
    ) -> None:
        super().__init__(out_features, in_features, role=role, reader=reader, name=name)
        self.bias = nn.Parameter((out_features,), reader.scheme.model_dtype) if bias else None

    def forward(self, x: nn.Tensor, out_dtype: str | None = None) -> nn.Tensor:
        y = self.product(x, out_dtype)
        if self.bias is None:
            return y
        return y + (self.bias if self.bias.dtype == y.dtype else self.bias.astype(y.dtype))


class Embedding(StoredMatrix):
    """Rows of a table (vocabulary, hidden) by token; the same table can serve as the language model's
    head."""

    def __init__(self, vocabulary: int, hidden: int, *, reader: Reader, name: str) -> None:
        super().__init__(vocabulary, hidden, role=ParameterRole.EMBEDDING, reader=reader, name=name)

    def forward(self, tokens: nn.Tensor) -> nn.Tensor:
        """(n,) int32 → (n, hidden)."""
        return self.rows(tokens)

    def logits(self, hidden: nn.Tensor, out_dtype: str | None = None) -> nn.Tensor:
        """(..., hidden) → (..., vocabulary): the head of a model with tied embeddings."""
        return self.product(hidden, out_dtype)


class Experts(Stored):
    """A matrix (out, in) for each of several experts: (experts, out, in)."""

    def __init__(self, shape: tuple[int, int, int], *, reader: Reader, name: str) -> None:
        super().__init__(shape, role=ParameterRole.EXPERTS, reader=reader, name=name)

    def restored(self) -> nn.Tensor:
        """The matrices in the model's dtype, which later passes restore inside the kernel that reads them."""
        return self._reader.restored(self._matrix, self._stored)

    def activations(self, x: nn.Tensor) -> nn.Tensor:
        """x (…, in) as the matrices are multiplied by it."""
        return self._reader.activations(self._matrix, self._stored, x)
