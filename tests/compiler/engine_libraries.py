"""Models of each kind of library that engines load, as small as they can be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlcbuild.compiler.tokenizer.vocabulary import Vocabulary, write_vocabulary
from tests.compiler.family_cases import CASES
from tests.compiler.pipeline import compile_library
from tests.compiler.tiny_llama import TINY_LLAMA
from tests.compiler.windowed_cases import WINDOWED
from tests.engine_functions import Kind
from tests.runtime.embedding.tiny_embedder import DECODER

ACTIVE = 287
LAST = {"model_type": "decoder", "pooling_strategy": "last", "normalize": True}


@dataclass(frozen=True, kw_only=True)
class Case:
    """A library's model; `hidden_states` is the attribute of that name."""

    config: Mapping[str, Any]
    kind: Kind
    quantization: str = "q0f32"
    hidden_states: bool = False


LIBRARIES: Mapping[str, Case] = {
    "llama": Case(config=TINY_LLAMA, kind=Kind.PAGED, quantization="q4f32_1", hidden_states=True),
    "deepseek_v3": Case(config=CASES["deepseek_v3"].config, kind=Kind.PAGED),
    "mamba2": Case(config=CASES["mamba2"].config, kind=Kind.RECURRENT),
    "qwen3_5": Case(config=CASES["qwen3_5"].config, kind=Kind.HYBRID),
    "bert": Case(config=CASES["bert"].config, kind=Kind.ENCODER),
    "qwen3-embedding": Case(config={**DECODER, "embedding_metadata": LAST}, kind=Kind.EMBEDDING_DECODER),
    # Heads of other kinds: with a soft cap and tied, with a scale, behind experts.
    "gemma2": Case(config=WINDOWED["gemma2"].config, kind=Kind.PAGED, hidden_states=True),
    "cohere": Case(config=CASES["cohere-norms"].config, kind=Kind.PAGED, hidden_states=True),
    "olmoe": Case(config=CASES["olmoe-clipped"].config, kind=Kind.PAGED, hidden_states=True),
    "deepseek_v2": Case(config=CASES["deepseek_v2"].config, kind=Kind.PAGED, hidden_states=True),
}


def compile_case(
    case: Case,
    target: Mapping[str, object],
    directory: Path,
    *,
    kernel_store: Path,
    quantization: str | None = None,
    architectures: Sequence[str] | None = None,
) -> Path:
    """Its library, of a tokenizer that has fewer tokens (`ACTIVE`) than the model has rows."""
    directory.mkdir(parents=True, exist_ok=True)
    write_vocabulary(Vocabulary(active_size=ACTIVE), directory / "vocabulary.json")
    return compile_library(
        case.config,
        quantization or case.quantization,
        target,
        directory,
        kernel_store=kernel_store,
        hidden_states=case.hidden_states,
        architectures=architectures,
    )
