"""AWQ checkpoints as AutoAWQ writes them: integers of 4 bits with zero points, in the layout of its GEMM kernels."""

from __future__ import annotations

from dataclasses import dataclass

from mlcbuild.compiler.models.config import ConfigReader
from mlcbuild.compiler.weights.checkpoint_format import CheckpointFormat, refuse_other_fields, refused
from mlcbuild.compiler.weights.held_weights import HeldWeights, words_of_integers

MAX_GROUP = 1 << 20
# What AutoAWQ and transformers tell their kernels, and which modules are left as they are, as their tensors show.
_OF_KERNELS = ("backend", "do_fuse", "exllama_config", "fuse_max_seq_len", "modules_to_fuse", "modules_to_not_convert")


@dataclass(frozen=True, slots=True, kw_only=True)
class AwqConfiguration:
    """`group_size` inputs share a scale and a zero point; None for all of them."""

    group_size: int | None


def resolve(table: ConfigReader) -> AwqConfiguration:
    """Raises StageError for other bits or layouts, and for fields that are not known."""
    table = table.with_other_names(bits="w_bit", group_size="q_group_size")
    bits = table.integer("bits", low=1, high=16)
    if bits != 4:
        raise refused(table, "bits", f"is {bits}; AWQ is read with 4")
    version = table.string("version", default="gemm").lower()
    if version != "gemm":
        raise refused(table, "version", f'is "{version}"; the layout that is read is "gemm"')
    if not table.boolean("zero_point", default=True):
        raise refused(table, "zero_point", "is false; AWQ is read with zero points")
    refuse_other_fields(table, "bits", "w_bit", "group_size", "q_group_size", "version", "zero_point", *_OF_KERNELS)
    group_size = table.integer("group_size", low=-1, high=MAX_GROUP, default=128)
    if group_size == 0:
        raise refused(table, "group_size", "is 0; it has to be a number of inputs, or -1 for all")
    return AwqConfiguration(group_size=None if group_size == -1 else group_size)


def held(configuration: AwqConfiguration) -> HeldWeights:
    group = configuration.group_size or 0
    return HeldWeights(
        words=words_of_integers(4, group=group, zero_points=True), integer_bits=4, zero_points=True, group=group
    )


FORMAT = CheckpointFormat(name="awq", method="awq", configuration=AwqConfiguration, resolve=resolve, held=held)
