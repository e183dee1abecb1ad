"""Writes a workspace of a model with Llama-3.2-1B's sizes and random weights, as a package for processors and as a GGUF
file of the same integers: `benchmarks.decode_speed` compares both, and what engines take does not depend on numbers.

    python -m benchmarks.random_llama FOLDER --tokenizer mlcbuild-out/…/smollm2-135m-cpu [--platform x86-64-v4]
    cd FOLDER && mlcbuild build //:package //:gguf

The tokenizer is that of any package with fewer tokens. The folder takes 2.5 GB.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from safetensors.numpy import save_file

_HIDDEN, _FEED_FORWARD, _LAYERS, _HEADS, _KEY_HEADS, _HEAD, _VOCABULARY = 2048, 8192, 16, 32, 8, 64, 128256
_CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": _HIDDEN,
    "intermediate_size": _FEED_FORWARD,
    "num_hidden_layers": _LAYERS,
    "num_attention_heads": _HEADS,
    "num_key_value_heads": _KEY_HEADS,
    "head_dim": _HEAD,
    "vocab_size": _VOCABULARY,
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "rope_scaling": {
        "factor": 32.0,
        "high_freq_factor": 4.0,
        "low_freq_factor": 1.0,
        "original_max_position_embeddings": 8192,
        "rope_type": "llama3",
    },
    "tie_word_embeddings": True,
    "hidden_act": "silu",
    "attention_bias": False,
    "mlp_bias": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "torch_dtype": "bfloat16",
}
_BUILD = """[workspace]
name = "random_llama"

[[model]]
name = "llama"
source = "weights"

[[model_package]]
name = "package"
model = ":llama"
quantization = "q4f32_1"
platform = "@platforms//:{platform}"

[[gguf_package]]
name = "gguf"
model = ":llama"
quantization = "q4f16_1"
"""


def weights() -> dict[str, Any]:
    """By the names of a checkpoint. Numbers are cut from a few million random ones."""
    random = np.random.default_rng(0)
    pool = random.standard_normal(1 << 22, dtype=np.float32)

    def matrix(rows: int, columns: int) -> Any:
        numbers = np.resize(np.roll(pool, int(random.integers(pool.size))), (rows, columns))
        return (numbers * columns**-0.5).astype(ml_dtypes.bfloat16)

    ones = np.ones(_HIDDEN, ml_dtypes.bfloat16)
    found = {"model.embed_tokens.weight": matrix(_VOCABULARY, _HIDDEN), "model.norm.weight": ones}
    sizes = {
        "self_attn.q_proj": (_HEADS * _HEAD, _HIDDEN),
        "self_attn.k_proj": (_KEY_HEADS * _HEAD, _HIDDEN),
        "self_attn.v_proj": (_KEY_HEADS * _HEAD, _HIDDEN),
        "self_attn.o_proj": (_HIDDEN, _HEADS * _HEAD),
        "mlp.gate_proj": (_FEED_FORWARD, _HIDDEN),
        "mlp.up_proj": (_FEED_FORWARD, _HIDDEN),
        "mlp.down_proj": (_HIDDEN, _FEED_FORWARD),
    }
    for layer in range(_LAYERS):
        for name, size in sizes.items():
            found[f"model.layers.{layer}.{name}.weight"] = matrix(*size)
        for name in ("input_layernorm", "post_attention_layernorm"):
            found[f"model.layers.{layer}.{name}.weight"] = ones
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tokenizer", type=Path, required=True, help="a package or a model's folder")
    parser.add_argument("--platform", default="x86-64-v4")
    given = parser.parse_args()
    source = given.folder / "weights"
    source.mkdir(parents=True)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(given.tokenizer / name, source / name)
    (source / "config.json").write_text(json.dumps(_CONFIG))
    save_file(weights(), source / "model.safetensors")
    (given.folder / "BUILD.toml").write_text(_BUILD.format(platform=given.platform))


if __name__ == "__main__":
    main()
