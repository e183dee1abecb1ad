"""The `config.json` of a Qwen3-Next or Qwen3.5 from the metadata of a GGUF file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlcbuild.compiler.models.configuration.layer_types import FULL
from mlcbuild.compiler.models.gguf.config import decoder_document, head_size
from mlcbuild.compiler.models.gguf.mixture import MIXTURE_KEYS, mixture_fields
from mlcbuild.errors import StageError

if TYPE_CHECKING:
    from mlcbuild.compiler.weights.gguf_file import GGUFFile

LINEAR = "linear_attention"
_SIZES = ("conv_kernel", "inner_size", "state_size", "time_step_rank", "group_count")
_INTERVAL, _RECURRENT = "full_attention_interval", "attention.recurrent_layers"
_PREDICTING = "nextn_predict_layers"
_SECTIONS = "rope.dimension_sections"
_FUSED = "ssm_in.weight"


def config_of_next(file: GGUFFile) -> dict[str, object]:
    """As llama.cpp reads it; the weights of the chosen experts are normalized. Raises StageError for files of older
    converters, which have all products of a recurrent layer in one tensor."""
    older = [name for name in file.tensors if name.endswith(f".{_FUSED}")]
    if older:
        raise StageError(
            f"{file.path} is of an older llama.cpp: it has the tensor {older[0]}",
            advice=("convert the model again, or import it from a Hugging Face directory",),
        )
    return _document(file, "qwen3next", "qwen3_next", "Qwen3NextForCausalLM")


def config_of_dense(file: GGUFFile) -> dict[str, object]:
    """As llama.cpp reads it."""
    _check_sections(file, "qwen35")
    return _document(file, "qwen35", "qwen3_5_text", "Qwen3_5ForCausalLM")


def config_of_moe(file: GGUFFile) -> dict[str, object]:
    """As llama.cpp reads it; the weights of the chosen experts are normalized."""
    _check_sections(file, "qwen35moe")
    return _document(file, "qwen35moe", "qwen3_5_moe_text", "Qwen3_5MoeForCausalLM")


def _document(file: GGUFFile, architecture: str, model_type: str, class_name: str) -> dict[str, object]:
    experts = () if model_type == "qwen3_5_text" else MIXTURE_KEYS
    predicting = () if model_type == "qwen3_next" else (_PREDICTING, _SECTIONS)
    document = decoder_document(
        file,
        architecture=architecture,
        model_type=model_type,
        class_name=class_name,
        also_read=(*(f"ssm.{name}" for name in _SIZES), _INTERVAL, _RECURRENT, *experts, *predicting),
        partial=True,
    )
    kernel, inner, state, heads, groups = (file.integer(f"{architecture}.ssm.{name}") for name in _SIZES)
    if heads < 1 or inner < 1 or inner % heads:
        raise StageError(f"{file.path}: recurrent layers of {inner} numbers for {heads} heads cannot be")
    # Layers that predict further tokens are counted among the others, and come last.
    blocks = file.integer(f"{architecture}.block_count")
    further = file.integer(f"{architecture}.{_PREDICTING}", 0) if predicting else 0
    if not 0 <= further < blocks <= 1 << 12:
        raise StageError(f"{file.path}: {further} of {blocks} layers that predict further tokens cannot be")
    found: dict[str, object] = {
        "num_hidden_layers": blocks - further,
        "layer_types": _layer_types(file, architecture, blocks)[: blocks - further],
        "linear_conv_kernel_dim": kernel,
        "linear_num_key_heads": groups,
        "linear_num_value_heads": heads,
        "linear_key_head_dim": state,
        "linear_value_head_dim": inner // heads,
    }
    if further:
        found["mtp_num_hidden_layers"] = further
    if experts:
        found |= mixture_fields(file, architecture) | {"norm_topk_prob": True}
    return document | found


def _layer_types(file: GGUFFile, architecture: str, blocks: int) -> list[str]:
    """By true for each recurrent layer, where the file says so, else by the interval of the others."""
    key = f"{architecture}.{_RECURRENT}"
    recurrent = file.metadata.get(key)
    if recurrent is None:
        interval = file.integer(f"{architecture}.{_INTERVAL}", 4)
        if interval < 1:
            raise StageError(f'{file.path}: the metadata "{architecture}.{_INTERVAL}" is {interval}')
        recurrent = [(number + 1) % interval != 0 for number in range(blocks)]
    if not isinstance(recurrent, list) or len(recurrent) != blocks or not all(each in (0, 1) for each in recurrent):
        raise StageError(f'{file.path}: the metadata "{key}" has to say true or false for each of {blocks} layers')
    return [LINEAR if each else FULL for each in recurrent]


def _check_sections(file: GGUFFile, architecture: str) -> None:
    """Pairs of a head turn by a token's place in time, in height and in width, one after the other, each as often as
    its section says; in a text the three are one number. Raises StageError where a pair is in no section: llama.cpp
    does not turn it."""
    key = f"{architecture}.{_SECTIONS}"
    sections = file.metadata.get(key)
    pairs = file.integer(f"{architecture}.rope.dimension_count", head_size(file, architecture)) // 2
    sizes = [each for each in sections if type(each) is int] if isinstance(sections, list) else []
    if len(sizes) != 4 or any(pair // 3 >= sizes[pair % 3] for pair in range(pairs)):
        raise StageError(
            f'{file.path}: the metadata "{key}" has to be 4 numbers, by which each of {pairs} pairs of a head turns'
        )
