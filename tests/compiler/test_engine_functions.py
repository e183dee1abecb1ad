"""What engines look up in a library is there, and does what they expect, for each kind of library."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from mlcbuild.runtime.machine import Machine
from tests.compiler.engine_libraries import ACTIVE, LIBRARIES, compile_case
from tests.compiler.pipeline import CPU_TARGET
from tests.engine_checks import checks_of
from tests.engine_functions import FUNCTIONS, OF_WEB, Engine, expected_functions

PAGE = Path(__file__).parents[2] / "docs/engines.md"
IN_CI = ("llama", "deepseek_v3", "mamba2", "qwen3_5", "bert", "qwen3-embedding")
Build = Callable[[str], Engine]


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory, kernel_store: Path) -> Build:
    """Libraries, each compiled once."""
    made: dict[str, Engine] = {}

    def built(name: str) -> Engine:
        if name not in made:
            directory = tmp_path_factory.mktemp(name)
            library = compile_case(LIBRARIES[name], CPU_TARGET, directory, kernel_store=kernel_store)
            made[name] = Engine(Machine(library))
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
    rows = re.findall(r"^\| `(\w+)` \| ([^|]+?) \| (✓?) ?\|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert {name: presence for name, presence, _ in rows} == {name: each.value for name, each in FUNCTIONS.items()}
    assert {name for name, _, of_web in rows if of_web} == OF_WEB
