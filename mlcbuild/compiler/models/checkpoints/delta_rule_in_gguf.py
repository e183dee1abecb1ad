"""How GGUF files hold a layer of the gated delta rule, and what makes Hugging Face's tensors of that.

llama.cpp's converter takes fused products apart. Of checkpoints that are not fused it brings the heads of values into
another order: the first heads of all key heads come first, then the second ones.
"""

from __future__ import annotations

from dataclasses import dataclass

from mlcbuild.compiler.models.architecture.recurrence import DeltaRuleConfig
from mlcbuild.compiler.models.checkpoints.operations import Concatenate, Operation, Permute, Reshape, Slice
from mlcbuild.compiler.models.checkpoints.parameters import GGUFSource, JoinedLayout, TensorLayout


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaRuleInGGUF:
    """Tensors of a `layer`, such as `blk.0`."""

    config: DeltaRuleConfig
    layer: str

    def of_heads(self, name: str, size: int, *rest: int, then: tuple[Operation, ...] = ()) -> TensorLayout:
        """A tensor with `size` rows a head, of which `then` makes the one that is wanted."""
        return self._tensor(name, self.config.heads * size, *rest, operations=(*self._in_groups(size, rest), *then))

    def channels(self, name: str, columns: int, *, then: tuple[Operation, ...] = ()) -> GGUFSource:
        """A tensor with a row a channel: queries and keys as they are, then values."""
        shape, keys = (self.config.channels, columns), 2 * self.config.keys
        values = self._in_groups(self.config.value_dim, (columns,))
        if not values:
            return self._tensor(name, *shape, operations=then)
        first = self._tensor(name, *shape, operations=(Slice(axis=0, begin=0, end=keys),))
        second = self._tensor(name, *shape, operations=(Slice(axis=0, begin=keys, end=shape[0]), *values))
        return JoinedLayout(tensors=(first, second), operations=(Concatenate(axis=0), *then))

    def output(self, rows: int) -> TensorLayout:
        """The last product, with a column for each number of each head."""
        config = self.config
        operations: tuple[Operation, ...] = ()
        if self._is_reordered:
            operations = (
                Reshape(shape=(rows, self._shared, config.key_heads, config.value_dim)),
                Permute(axes=(0, 2, 1, 3)),
                Reshape(shape=(rows, config.inner)),
            )
        return self._tensor("ssm_out.weight", rows, config.inner, operations=operations)

    def fused(self, columns: int) -> JoinedLayout:
        """Queries, keys and values of one tensor, and gates of another, by key heads."""
        config = self.config
        values = self._shared * config.value_dim
        parts, begin = [], 0
        for size in (config.key_dim, config.key_dim, values):
            rows = Slice(axis=0, begin=begin, end=begin + config.key_heads * size)
            by_head = Reshape(shape=(config.key_heads, size, columns))
            parts.append(self._tensor("attn_qkv.weight", config.channels, columns, operations=(rows, by_head)))
            begin = rows.end
        gates = Reshape(shape=(config.key_heads, values, columns))
        parts.append(self._tensor("attn_gate.weight", config.inner, columns, operations=(gates,)))
        whole = Reshape(shape=(config.channels + config.inner, columns))
        return JoinedLayout(tensors=tuple(parts), operations=(Concatenate(axis=1), whole))

    @property
    def _shared(self) -> int:
        """How many heads share a key."""
        return self.config.heads // self.config.key_heads

    @property
    def _is_reordered(self) -> bool:
        return not self.config.fused and self._shared > 1 and self.config.key_heads > 1

    def _in_groups(self, size: int, rest: tuple[int, ...]) -> tuple[Operation, ...]:
        """Rows, `size` a head, by key heads again."""
        config = self.config
        if not self._is_reordered:
            return ()
        return (
            Reshape(shape=(self._shared, config.key_heads, size, *rest)),
            Permute(axes=(1, 0, 2, *range(3, 3 + len(rest)))),
            Reshape(shape=(config.heads * size, *rest)),
        )

    def _tensor(self, name: str, *shape: int, operations: tuple[Operation, ...]) -> TensorLayout:
        return TensorLayout(name=f"{self.layer}.{name}", shape=shape, operations=operations)
