"""Sizes of recurrent layers in the metadata of GGUF files, under the names that Mamba's have in llama.cpp."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from mlcbuild.compiler.models.architecture.recurrence import DeltaRuleConfig, Recurrence
from mlcbuild.compiler.models.gguf.written import Value
from mlcbuild.errors import StageError

if TYPE_CHECKING:
    from mlcbuild.compiler.weights.gguf_file import GGUFFile

RECURRENCE_KEYS = ("ssm.conv_kernel", "ssm.inner_size", "ssm.state_size", "ssm.time_step_rank", "ssm.group_count")
"""Metadata by their names without the architecture's."""


class RecurrenceSizes(NamedTuple):
    """As `architecture.recurrence` has them: a head's state is (head_dim, state_size)."""

    convolution: int
    inner: int
    state_size: int
    heads: int
    groups: int

    @property
    def head_dim(self) -> int:
        return self.inner // self.heads


def recurrence_sizes(file: GGUFFile, architecture: str) -> RecurrenceSizes:
    """Raises StageError for sizes that cannot be."""
    sizes = RecurrenceSizes(*(file.integer(f"{architecture}.{key}") for key in RECURRENCE_KEYS))
    if sizes.heads < 1 or sizes.inner < 1 or sizes.inner % sizes.heads:
        raise StageError(f"{file.path}: recurrent layers of {sizes.inner} numbers for {sizes.heads} heads cannot be")
    return sizes


def recurrence_metadata(config: Recurrence) -> dict[str, Value]:
    """The inverse of `recurrence_sizes`."""
    if isinstance(config, DeltaRuleConfig):
        state_size, groups = config.key_dim, config.key_heads
    else:
        state_size, groups = config.state_size, config.groups
    sizes = RecurrenceSizes(
        convolution=config.convolution, inner=config.inner, state_size=state_size, heads=config.heads, groups=groups
    )
    return dict(zip(RECURRENCE_KEYS, sizes, strict=True))
