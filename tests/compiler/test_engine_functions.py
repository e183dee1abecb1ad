"""What engines look up in a library is there, and does what they expect."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from mlcbuild.compiler.tokenizer.vocabulary import Vocabulary, write_vocabulary
from tests.compiler.pipeline import CPU_TARGET, compile_library
from tests.compiler.tiny_llama import TINY_LLAMA
from tests.engine_functions import CHECKS, FUNCTIONS, Check, Engine, Presence

PAGE = Path(__file__).parents[2] / "docs/engines.md"
ACTIVE = 311


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory, kernel_store: Path) -> Engine:
    """Of a library with hidden states, whose tokenizer has fewer tokens than the model has rows."""
    directory = tmp_path_factory.mktemp("library")
    write_vocabulary(Vocabulary(active_size=ACTIVE), directory / "vocabulary.json")
    library = compile_library(
        TINY_LLAMA, "q4f32_1", CPU_TARGET, directory, kernel_store=kernel_store, hidden_states=True
    )
    return Engine(library)


@pytest.mark.slow
def test_a_library_has_what_engines_look_up(engine: Engine) -> None:
    present = (Presence.ALL, Presence.PAGES, Presence.HIDDEN_STATES)
    expected = {name for name, presence in FUNCTIONS.items() if presence in present}
    assert {name for name in FUNCTIONS if engine.has(name)} == expected


@pytest.mark.slow
@pytest.mark.parametrize("batch", [1, 5])
@pytest.mark.parametrize("check", CHECKS[Presence.ALL])
def test_functions_do_what_engines_expect(engine: Engine, check: Check, batch: int) -> None:
    assert engine.active == ACTIVE
    check(engine, np.random.default_rng(0), batch)


def test_the_page_of_engines_has_every_function_that_they_look_up() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| ([^|]+?) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE))
    assert rows == {name: presence.value for name, presence in FUNCTIONS.items()}
