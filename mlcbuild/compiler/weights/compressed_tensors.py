"""What the formats of compressed-tensors (llm-compressor, vLLM) have alike in their `quantization_config`.

Neither NumPy nor tvm is imported here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mlcbuild.compiler.models.config import ConfigReader
from mlcbuild.compiler.weights.checkpoint_format import refuse_other_fields, refused

METHOD = "compressed-tensors"
# What was told of compression, and which modules were left, as their tensors show.
_TOLD = ("global_compression_ratio", "ignore", "quantization_status", "version", "config_groups")
# How scales were found.
_OF_QUANTIZERS = ("actorder", "block_structure", "observer", "observer_kwargs", "scale_dtype", "zp_dtype")
FIELDS = ("num_bits", "type", "symmetric", "group_size", "strategy", "dynamic", *_OF_QUANTIZERS)
"""The fields that say how weights, or activations, are quantized."""


def groups_of_modules(table: ConfigReader, forms: Sequence[str], *more: str) -> Iterator[ConfigReader]:
    """The groups of modules that are quantized alike, which may have `more` fields than weights are read of. Raises
    StageError for one of another form than `forms`, and for fields that are not known."""
    sparsity = table.table("sparsity_config").string("format", default="dense") if table.has("sparsity_config") else ""
    if sparsity not in ("", "dense"):
        raise refused(table, "sparsity_config", f'is of the format "{sparsity}"')
    refuse_other_fields(table, *_TOLD, "sparsity_config")
    groups = table.table("config_groups")
    for name in groups.document:
        group = groups.table(name)
        form = group.string("format", default=forms[0])
        if form not in forms:
            raise refused(group, "format", f'is "{form}"')
        refuse_other_fields(group, "targets", "weights", *more, "format")
        yield group


def refuse_dynamic(weights: ConfigReader) -> None:
    """Raises StageError for weights whose scales are found as they are read."""
    if weights.value("dynamic") not in (None, False):
        raise refused(weights, "dynamic", "is set; scales of weights are read")
