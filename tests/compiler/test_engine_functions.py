"""What engines look up in a library is there, and does what they expect, for each kind of library."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlcbuild.compiler.tokenizer.vocabulary import Vocabulary, write_vocabulary
from tests.compiler.family_cases import CASES, WINDOWED
from tests.compiler.pipeline import CPU_TARGET, compile_library
from tests.compiler.tiny_llama import TINY_LLAMA
from tests.engine_checks import checks_of
from tests.engine_functions import FUNCTIONS, Engine, Kind, expected_functions
from tests.runtime.embedding.tiny_embedder import DECODER

PAGE = Path(__file__).parents[2] / "docs/engines.md"
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
IN_CI = ("llama", "deepseek_v3", "mamba2", "qwen3_5", "bert", "qwen3-embedding")
Build = Callable[[str], Engine]


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory, kernel_store: Path) -> Build:
    """Libraries, each compiled once, of tokenizers that have fewer tokens than their models have rows."""
    made: dict[str, Engine] = {}

    def built(name: str) -> Engine:
        if name not in made:
            case, directory = LIBRARIES[name], tmp_path_factory.mktemp(name)
            write_vocabulary(Vocabulary(active_size=ACTIVE), directory / "vocabulary.json")
            made[name] = Engine(
                compile_library(
                    case.config,
                    case.quantization,
                    CPU_TARGET,
                    directory,
                    kernel_store=kernel_store,
                    hidden_states=case.hidden_states,
                )
            )
        return made[name]

    return built


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in IN_CI else pytest.mark.exhaustive) for name in LIBRARIES],
)
def test_a_library_has_what_engines_look_up_and_it_does_what_they_expect(name: str, build: Build) -> None:
    engine, case = build(name), LIBRARIES[name]
    assert engine.kind is case.kind
    assert engine.active == ACTIVE
    assert engine.functions == expected_functions(case.kind, gpu=False, hidden_states=case.hidden_states)
    for check in checks_of(case.kind, gpu=False, hidden_states=case.hidden_states):
        for batch in (1, 5):
            check(engine, np.random.default_rng(0), batch)


def test_the_page_of_engines_has_every_function_that_they_look_up() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| ([^|]+?) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE))
    assert rows == {name: presence.value for name, presence in FUNCTIONS.items()}
