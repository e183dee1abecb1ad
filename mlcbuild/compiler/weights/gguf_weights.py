"""The tensors of a GGUF file as Hugging Face has them: their names, float32, and rotary rows in its order.

llama.cpp's converter interleaves the two halves of each head of q and k (its rotary embedding turns
neighbours, Hugging Face's turns halves); that is undone here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from mlcbuild.compiler.weights.gguf_file import GGUFFile, GGUFTensor
from mlcbuild.compiler.weights.tensor import Array, Tensor, TensorDescription
from mlcbuild.errors import StageError

# Rotary factors: import of the configuration reads them, and no checkpoint has them.
ROPE_FACTORS = "rope_freqs.weight"

_TOP = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_BLOCK = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_BLOCK_NAME = re.compile(r"blk\.(\d+)\.(\w+)\.(weight|bias)")


class GGUFWeights:
    """A file of the architecture `llama`. Raises StageError for another one, and for a damaged file."""

    def __init__(self, path: Path) -> None:
        self._file = GGUFFile(path)
        architecture = self._file.string("general.architecture")
        if architecture != "llama":
            self._file.close()
            raise StageError(f'{path.name} holds a model of the architecture "{architecture}"; "llama" is read')
        self._tensors = {
            _hugging_face_name(name): tensor for name, tensor in self._file.tensors.items() if name != ROPE_FACTORS
        }

    @property
    def descriptions(self) -> Mapping[str, TensorDescription]:
        return {
            name: TensorDescription(name=name, dtype="float32", shape=tensor.shape)
            for name, tensor in self._tensors.items()
        }

    def read(self, name: str) -> Tensor:
        """One tensor, dequantized to float32."""
        tensor = self._tensors[name]
        numbers = dequantized(self._file, tensor)
        heads = self._rotated_heads(name)
        if heads:
            numbers = _undo_interleaving(numbers, heads)
        described = TensorDescription(name=name, dtype="float32", shape=tensor.shape)
        return Tensor(description=described, data=np.ascontiguousarray(numbers, dtype="<f4"))

    def close(self) -> None:
        self._file.close()

    def _rotated_heads(self, name: str) -> int:
        """How many heads a tensor's rows are, where the rotary embedding turns them; else 0."""
        heads = self._file.integer("llama.attention.head_count")
        if ".q_proj." in name:
            return heads
        if ".k_proj." in name:
            return self._file.integer("llama.attention.head_count_kv", heads)
        return 0


def dequantized(file: GGUFFile, tensor: GGUFTensor) -> Array:
    """A tensor's numbers, float32 but for the types that hold plain numbers of their own."""
    from gguf.constants import GGMLQuantizationType
    from gguf.quants import dequantize

    kind = GGMLQuantizationType(tensor.type_number)
    # A copy: a view would keep the mapped file from being closed.
    stored = np.frombuffer(file.content[tensor.begin : tensor.begin + tensor.size_bytes], dtype=np.uint8)
    rows = stored.reshape(*tensor.shape[:-1], -1) if tensor.shape else stored
    if kind is GGMLQuantizationType.F32:
        return rows.view("<f4")
    if kind is GGMLQuantizationType.F16:
        return rows.view("<f2").astype("<f4")
    try:
        numbers: Array = dequantize(rows, kind)
    except NotImplementedError as error:
        raise StageError(
            f"{file.path.name}: the tensor {tensor.name} is of type {kind.name}, which holds no weights"
        ) from error
    return numbers


def _undo_interleaving(numbers: Array, heads: int) -> Array:
    """Rows (head, pair, half) back to (head, half, pair)."""
    rows, rest = numbers.shape[0], numbers.shape[1:]
    if rows % (2 * heads):
        raise StageError(f"a tensor of {rows} rows has no {heads} heads of even size")
    return numbers.reshape(heads, rows // heads // 2, 2, *rest).swapaxes(1, 2).reshape(numbers.shape)


def _hugging_face_name(name: str) -> str:
    if name in _TOP:
        return _TOP[name]
    match = _BLOCK_NAME.fullmatch(name)
    if match and match[2] in _BLOCK:
        return f"model.layers.{match[1]}.{_BLOCK[match[2]]}.{match[3]}"
    return name  # import names it among the tensors that the model does not have
