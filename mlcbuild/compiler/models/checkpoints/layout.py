"""How checkpoints hold a decoder: the names of tensors by Hugging Face and by llama.cpp, and how fused ones lie."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class TensorName:
    """A module's tensors without `.weight` and `.bias`: in a checkpoint of Hugging Face, and in a GGUF file, where an
    empty name means that no GGUF file is read."""

    hugging_face: str
    gguf: str = ""

    def below(self, hugging_face: str, gguf: str) -> TensorName:
        """The same module of a layer that has these names."""
        return TensorName(f"{hugging_face}.{self.hugging_face}", f"{gguf}.{self.gguf}" if self.gguf else "")


IGNORED = (r".*\.rotary_emb\.inv_freq", r"rope_freqs\.weight")
IGNORED_WITH_LONGROPE = (*IGNORED, r"rope_factors_(long|short)\.weight")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertNames:
    """What Hugging Face's checkpoints call the parts of a mixture, below the layer's name.

    `module` is the mixture's. `gate`, `up` and `down` are the names of an expert's matrices behind `experts.<number>.`,
    and `router` the router's below the module. `fused_gate_up` and `fused_down` are names of tensors (experts, out, in)
    of all experts, and `fused_router` is the router in such checkpoints. `shared` are the shared experts, and
    `shared_gate` is what gates them; `fused_shared` are names below the layer of their two products, if a checkpoint
    may have gate and up as one. `transposed`: the fused tensors are (experts, in, out). `interleaved`: those, and
    their biases, called `<name>_bias`, have gate and up in turn. `in_mxfp4`: there may be
    `<name>_blocks` (experts, out, in) in their place (`weights.mxfp4`), whose rows are gate and up in turn.
    """

    module: str = "mlp"
    gate: str = "gate_proj"
    up: str = "up_proj"
    down: str = "down_proj"
    router: str = "gate"
    fused_gate_up: tuple[str, ...] = ("mlp.experts.gate_up_proj",)
    fused_down: tuple[str, ...] = ("mlp.experts.down_proj",)
    fused_router: str = "mlp.gate"
    shared: str = "shared_expert"
    shared_gate: str = "shared_expert_gate"
    fused_shared: tuple[str, str] = ("", "")
    transposed: bool = False
    interleaved: bool = False
    in_mxfp4: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointLayout:
    """Tensors by their names; those from `attention_norm` on are below a layer, in a GGUF file below `blk.N`. The
    values here are those of a llama.

    - `first_layer` is the number of the first of `layers`.
    - `qkv` and `gate_up` have a name for each part that is a tensor of its own: one where the parts are fused.
    - `query_norm` and `key_norm` have `{head}` in their names where each head's weights are a tensor.
    - `sinks` is the whole name of a tensor.
    - `gguf_qkv` are the names in a GGUF file of queries, keys and values that are fused in other checkpoints, and not
      there.
    - `gguf_gate_up` are the same of gate and up.
    - `gguf_latent_up` is the name in a GGUF file of what makes keys and values of latent vectors. Without it, files
      have the two halves by heads.
    - `grouped_qkv`: a fused tensor has for each key-value head the rows of its queries, its key and its value. Else it
      has all queries, all keys, all values.
    - `transposed`: matrices of layers are (in, out), as those of Conv1D in transformers. llama.cpp's are (out, in).
    - `one_added`: norms multiply by 1 + the weight in Hugging Face's checkpoint; GGUF files have the sum.
    - `unit_head`: rows of the head are divided by their lengths.
    - `gguf_interleaves`: llama.cpp's converter has interleaved the two halves of each head of q and k (`permute` in its
      class for the architecture). It does so for the architectures whose rotary embedding turns neighbours there.
    - `other_names`: pairs of what names begin with, here and in other checkpoints of Hugging Face.
    - `ignored`: tensors that checkpoints hold and the model has no use for, as regular expressions for whole names.
    """

    embedding: TensorName = TensorName("model.embed_tokens", "token_embd")
    positions: TensorName = TensorName("model.embed_positions", "position_embd")
    layers: str = "model.layers"
    first_layer: int = 0
    norm: TensorName = TensorName("model.norm", "output_norm")
    head: TensorName = TensorName("lm_head", "output")
    attention_norm: TensorName = TensorName("input_layernorm", "attn_norm")
    after_attention_norm: TensorName = TensorName("post_attention_layernorm", "post_attention_norm")
    feed_forward_norm: TensorName = TensorName("post_attention_layernorm", "ffn_norm")
    after_feed_forward_norm: TensorName = TensorName("post_feedforward_layernorm", "post_ffw_norm")
    qkv: tuple[TensorName, ...] = (
        TensorName("self_attn.q_proj", "attn_q"),
        TensorName("self_attn.k_proj", "attn_k"),
        TensorName("self_attn.v_proj", "attn_v"),
    )
    gguf_qkv: tuple[str, ...] = ()
    gguf_gate_up: tuple[str, ...] = ()
    gguf_latent_up: str = ""
    query_norm: TensorName = TensorName("self_attn.q_norm", "attn_q_norm")
    key_norm: TensorName = TensorName("self_attn.k_norm", "attn_k_norm")
    sinks: TensorName = TensorName("self_attn.sinks", "attn_sinks.weight")
    output: TensorName = TensorName("self_attn.o_proj", "attn_output")
    gate_up: tuple[TensorName, ...] = (
        TensorName("mlp.gate_proj", "ffn_gate"),
        TensorName("mlp.up_proj", "ffn_up"),
    )
    up: TensorName = TensorName("mlp.up_proj", "ffn_up")
    down: TensorName = TensorName("mlp.down_proj", "ffn_down")
    experts: ExpertNames = ExpertNames()
    recurrence: TensorName = TensorName("linear_attn")
    grouped_qkv: bool = False
    transposed: bool = False
    one_added: bool = False
    unit_head: bool = False
    gguf_interleaves: bool = False
    other_names: tuple[tuple[str, str], ...] = ()
    # Checkpoints of early transformers carry the rotary frequencies, which follow from the configuration; a GGUF file
    # may carry factors, which its import reads.
    ignored: tuple[str, ...] = IGNORED

    def below(self, root: str) -> CheckpointLayout:
        """The layout of a model that is a part of another one, where Hugging Face's names begin with `root`."""
        parts = {name: getattr(self, name) for name in ("embedding", "positions", "norm", "head")}
        moved = {name: replace(part, hugging_face=root + part.hugging_face) for name, part in parts.items()}
        return replace(self, layers=root + self.layers, **moved)

    def without_layers_behind(self, layers: int, further: int, *, in_gguf: bool = False) -> CheckpointLayout:
        """The layout where `further` layers behind the model's, which predict more tokens, are left out: those of
        Hugging Face's names, or those of GGUF files."""
        if not further:
            return self
        numbers = "|".join(str(layers + number) for number in range(further))
        name = "blk" if in_gguf else re.escape(self.layers)
        return replace(self, ignored=(*self.ignored, rf"{name}\.({numbers})\..*"))

    def others(self, name: str) -> tuple[str, ...]:
        """What else Hugging Face's checkpoints may call a tensor."""
        return tuple(new + name.removeprefix(old) for old, new in self.other_names if name.startswith(old))
