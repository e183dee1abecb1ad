"""Models as packages in other engines' formats have them: the stages from a checkpoint's tensors to a file, in one
process."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from safetensors.numpy import save_file

from mlcbuild.compiler.quantization.scheme import QuantizationScheme
from mlcbuild.compiler.stages import describe_gguf, index_weights, quantize, write_compressed_tensors, write_gguf
from mlcbuild.rules.families import families
from tests.compiler import schemes
from tests.compiler.resolving import write_resolved
from tests.compiler.tiny_models import Array, byte_level_letters

SHARD = "params_shard_0.bin"


def byte_level_tokenizer(size: int) -> Mapping[str, object]:
    """A tokenizer.json of the vocabulary that `gguf_cases` writes."""
    letters = ["<pad>", "<s>", "</s>", *byte_level_letters(), "ab"]
    tokens = letters + [f"<unused{number}>" for number in range(size - len(letters))]
    return {
        "version": "1.0",
        "added_tokens": [
            {
                "id": number,
                "content": tokens[number],
                "special": True,
                "normalized": False,
                **dict.fromkeys(("single_word", "lstrip", "rstrip"), False),
            }
            for number in range(3)
        ],
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {
            "type": "BPE",
            "vocab": {token: number for number, token in enumerate(tokens)},
            "merges": [["a", "b"]],
        },
    }


def write_weights(
    directory: Path, config: Mapping[str, object], tensors: Mapping[str, Array], quantization: str | QuantizationScheme
) -> None:
    """Write what ResolveModel, Quantize and IndexWeights make of a checkpoint: one shard with its index."""
    directory.mkdir(parents=True, exist_ok=True)
    write_resolved(directory, config)
    scheme = schemes.scheme(quantization) if isinstance(quantization, str) else quantization
    save_file(dict(tensors), directory / "shard.safetensors")
    quantize.run(
        shard=directory / "shard.safetensors",
        parameters=directory / "parameters.json",
        shard_out=directory / SHARD,
        records=directory / "records.json",
        scheme=scheme,
        encoder=schemes.encoder_class(scheme),
        index=0,
    )
    index_weights.run(
        records=(directory / "records.json",),
        parameters=directory / "parameters.json",
        index=directory / "tensor-cache.json",
        scheme=scheme,
    )


def write_tokenizer(folder: Path, tokenizer: Mapping[str, object], **configuration: object) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    (folder / "tokenizer_config.json").write_text(json.dumps(configuration))
    return folder


def gguf_of(directory: Path, tokenizer: Path, quantization: str | QuantizationScheme) -> Path:
    """The GGUF file of what `write_weights` wrote."""
    scheme = schemes.scheme(quantization) if isinstance(quantization, str) else quantization
    describe_gguf.run(
        model=directory / "model.json",
        parameters=directory / "parameters.json",
        config=directory / "config.json",
        tokenizer=tokenizer,
        header=directory / "header.json",
        families=families(),
    )
    write_gguf.run(
        header=directory / "header.json",
        parameters=directory / "parameters.json",
        index=directory / "tensor-cache.json",
        shards=(directory / SHARD,),
        gguf=directory / "model.gguf",
        scheme=scheme,
        encoder=schemes.encoder_class(scheme),
    )
    return directory / "model.gguf"


def checkpoint_of(directory: Path, quantization: str | QuantizationScheme) -> Path:
    """The checkpoint for compressed-tensors of what `write_weights` wrote, with its config.json."""
    scheme = schemes.scheme(quantization) if isinstance(quantization, str) else quantization
    folder = directory / "checkpoint"
    write_compressed_tensors.run(
        config=directory / "config.json",
        parameters=directory / "parameters.json",
        index=directory / "tensor-cache.json",
        shards=(directory / SHARD,),
        config_out=directory / "written.json",
        checkpoint=folder,
        scheme=scheme,
        encoder=schemes.encoder_class(scheme),
    )
    (directory / "written.json").rename(folder / "config.json")
    return folder
