"""GPTQ checkpoints as AutoGPTQ and GPTQModel write them: integers of 2, 3, 4 or 8 bits, with act-order or without."""

from __future__ import annotations

from dataclasses import dataclass

from mlcbuild.compiler.models.config import ConfigReader
from mlcbuild.compiler.weights.checkpoint_format import CheckpointFormat, refuse_other_fields, refused
from mlcbuild.compiler.weights.held_weights import HeldWeights, words_of_integers

BITS = (2, 3, 4, 8)
MAX_GROUP = 1 << 20
# How the integers were found, which kernels read them, and what their tensors show.
_OF_QUANTIZERS = (
    *("act_group_aware", "batch_size", "cache_block_outputs", "damp_auto_increment", "damp_percent", "dataset"),
    *("block_name_to_quantize", "fail_safe", "gptaq", "lm_head", "max_input_length", "meta", "model_file_base_name"),
    *("model_name_or_path", "model_seqlen", "module_name_preceding_first_block", "modules_in_block_to_quantize", "mse"),
    *("offload_to_disk", "offload_to_disk_path", "pack_impl", "pad_token_id", "static_groups", "sym", "tokenizer"),
    *("true_sequential", "use_cuda_fp16", "v2", "v2_alpha"),
    *("backend", "disable_exllama", "exllama_config", "use_exllama", "dynamic"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GptqConfiguration:
    """`group_size` inputs share a scale and a zero point, None for all of them, where no `g_idx` says which do; with
    `act_order` there has to be one. `zero_offset` is what stored zero points lack. Where all are `symmetric`, a zero
    point is the middle."""

    bits: int
    group_size: int | None
    act_order: bool
    zero_offset: int
    symmetric: bool = True


def resolve(table: ConfigReader) -> GptqConfiguration:
    """Raises StageError for other bits or layouts, and for fields that are not known."""
    bits = table.integer("bits", low=1, high=16)
    if bits not in BITS:
        raise refused(table, "bits", f"is {bits}; GPTQ is read with {', '.join(map(str, BITS))}")
    table = table.with_other_names(checkpoint_format="format")
    layout = table.string("checkpoint_format", default="gptq").lower()
    if layout not in ("gptq", "gptq_v2"):
        raise refused(table, "checkpoint_format", f'is "{layout}"; the layouts that are read are "gptq" and "gptq_v2"')
    if table.string("pack_dtype", default="int32") != "int32":
        raise refused(table, "pack_dtype", "is not int32")
    group_size = table.integer("group_size", low=-1, high=MAX_GROUP, default=128)
    if group_size == 0:
        raise refused(table, "group_size", "is 0; it has to be a number of inputs, or -1 for all")
    known = ("bits", "group_size", "desc_act", "checkpoint_format", "format", "pack_dtype", "is_marlin_format")
    table.refuse(is_marlin_format=False)
    refuse_other_fields(table, *known, *_OF_QUANTIZERS)
    return GptqConfiguration(
        bits=bits,
        group_size=None if group_size == -1 else group_size,
        act_order=table.boolean("desc_act", default=False),
        zero_offset=1 if layout == "gptq" else 0,
        symmetric=table.boolean("sym", default=True),
    )


def held(configuration: GptqConfiguration) -> HeldWeights:
    bits, group, zero_points = configuration.bits, configuration.group_size or 0, not configuration.symmetric
    words = words_of_integers(bits, group=group, zero_points=zero_points)
    if configuration.act_order:
        return HeldWeights(words=f"{words}, whose columns act-order has scattered")
    return HeldWeights(words=words, integer_bits=bits, zero_points=zero_points, group=group)


FORMAT = CheckpointFormat(name="gptq", method="gptq", configuration=GptqConfiguration, resolve=resolve, held=held)
