"""Packages of tiny models that make vectors of texts, from folders as sentence-transformers writes them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tests.compiler.running import Array, random_model
from tests.compiler.tiny_models import byte_level_letters

WORDS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "hello", "world", "a", "text", "##s", "un", "##usual", ",", ".")
ENCODER: Mapping[str, Any] = {
    "model_type": "bert",
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": len(WORDS),
    "max_position_embeddings": 48,
}
DECODER: Mapping[str, Any] = {
    "model_type": "qwen3",
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 300,
    "max_position_embeddings": 64,
    "tie_word_embeddings": False,
}
MEAN = {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}
LAST = {"pooling_mode_lasttoken": True}


def write_encoder(directory: Path) -> Any:
    """A folder with a vocabulary and no tokenizer.json; texts are of 40 tokens at most. Returns transformers' model."""
    model = random_model(ENCODER)
    write_encoder_of(directory, _tensors(model))
    return model


def write_encoder_of(directory: Path, tensors: Mapping[str, Array]) -> None:
    """`write_encoder` with these numbers, by transformers' names."""
    _write(directory, ENCODER, tensors, pooling=MEAN)
    (directory / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    (directory / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "BertTokenizer"}))
    (directory / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 40, "do_lower_case": True}))


def random_encoder(*, seed: int = 0) -> dict[str, Array]:
    """Random numbers for an encoder, where transformers need not be installed."""
    hidden, inner = ENCODER["hidden_size"], ENCODER["intermediate_size"]
    norms = ["embeddings.LayerNorm"]
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (ENCODER["vocab_size"], hidden),
        "embeddings.position_embeddings.weight": (ENCODER["max_position_embeddings"], hidden),
        "embeddings.token_type_embeddings.weight": (2, hidden),
    }
    for layer in range(ENCODER["num_hidden_layers"]):
        prefix = f"encoder.layer.{layer}."
        square = ("attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense")
        sizes = {**dict.fromkeys(square, (hidden, hidden)), "intermediate.dense": (inner, hidden)}
        for name, size in {**sizes, "output.dense": (hidden, inner)}.items():
            shapes |= {f"{prefix}{name}.weight": size, f"{prefix}{name}.bias": size[:1]}
        norms += [f"{prefix}attention.output.LayerNorm", f"{prefix}output.LayerNorm"]
    for name in norms:
        shapes |= {f"{name}.weight": (hidden,), f"{name}.bias": (hidden,)}
    random = np.random.default_rng(seed)
    return {name: random.standard_normal(shape).astype("float32") for name, shape in shapes.items()}


def write_decoder(directory: Path) -> Any:
    """A folder without a head, as Qwen3-Embedding's; its tokenizer puts a token behind a text, and would cut and fill
    texts up. Returns transformers' model without its head."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    whole = random_model(DECODER)
    tensors = {name.removeprefix("model."): tensor for name, tensor in _tensors(whole).items() if "lm_head" not in name}
    _write(directory, DECODER, tensors, pooling=LAST)
    letters = ["<|endoftext|>", *byte_level_letters()]
    tokenizer = Tokenizer(models.BPE(vocab={letter: number for number, letter in enumerate(letters)}, merges=[]))
    tokenizer.add_special_tokens(["<|endoftext|>"])
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A <|endoftext|>", special_tokens=[("<|endoftext|>", 0)]
    )
    tokenizer.enable_truncation(8)
    tokenizer.enable_padding(length=8)
    tokenizer.save(str(directory / "tokenizer.json"))
    return whole.model


def _tensors(model: Any) -> dict[str, Array]:
    return {name: tensor.detach().numpy() for name, tensor in model.state_dict().items()}


def _write(
    directory: Path, config: Mapping[str, Any], tensors: Mapping[str, Array], *, pooling: Mapping[str, bool]
) -> None:
    from safetensors.numpy import save_file

    (directory / "1_Pooling").mkdir(parents=True)
    (directory / "config.json").write_text(json.dumps(dict(config)))
    save_file({name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}, directory / "model.safetensors")
    modules = [
        {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for number, (kind, path) in enumerate((("Transformer", ""), ("Pooling", "1_Pooling"), ("Normalize", "2")))
    ]
    (directory / "modules.json").write_text(json.dumps(modules))
    (directory / "1_Pooling" / "config.json").write_text(json.dumps(dict(pooling)))
