"""A library that is built from a GGUF file, compared with llama.cpp on the same file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mlcbuild.compiler.models.gguf.architecture import gguf_architecture
from mlcbuild.compiler.weights.gguf_file import GGUFFile
from mlcbuild.rules.families import families
from tests.compiler import schemes
from tests.compiler.families import read_tensors
from tests.compiler.gguf_case import GGUFCase
from tests.compiler.gguf_writing import file_of
from tests.compiler.llama_cpp import LlamaCppModel
from tests.compiler.parity import compare, sequences
from tests.compiler.pipeline import CPU_TARGET, compile_library
from tests.compiler.running import Library
from tests.compiler.tiny_models import Array


@dataclass(frozen=True, kw_only=True)
class ReadFile:
    """What ImportConfig and ImportWeights make of a file: the `config.json`, and tensors by Hugging Face's names."""

    document: dict[str, object]
    tensors: dict[str, Array]


def read_file(path: Path) -> ReadFile:
    file = GGUFFile(path)
    try:
        document = gguf_architecture(file, families()).config(file)
    finally:
        file.close()
    return ReadFile(document=document, tensors=read_tensors(path, document))


def largest_error(case: GGUFCase, directory: Path, *, kernel_store: Path) -> float:
    """The largest difference of logits in float32 from llama.cpp's, relative to the largest: of what
    `parity.compare` compares. Fails above the case's bound. llama.cpp computes with the numbers that quantized matrices
    stand for, because it would round what it multiplies these by."""
    assert case.bound is not None, case.reason
    directory.mkdir(parents=True, exist_ok=True)
    path = file_of(directory / "model.gguf", case)
    read = read_file(path)
    texts = sequences(case.config["vocab_size"])
    reference = LlamaCppModel(file_of(directory / "restored.gguf", case, restored=True))
    expected = [reference.logits(text, context=case.context) for text in texts]
    reference.close()
    built = compile_library(
        read.document, "q0f32", CPU_TARGET, directory, kernel_store=kernel_store, overrides=case.overrides
    )
    stored = schemes.stored(read.document, schemes.scheme("q0f32"), read.tensors)
    library = Library.load(built, stored, context=case.context)
    largest = max(float(np.abs(logits).max()) for logits in expected)
    return compare(library, texts, expected, allowed=case.bound * largest) / largest
