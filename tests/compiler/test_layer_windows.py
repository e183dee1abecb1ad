"""Compiled models whose layers see less than others, or rotate differently, against transformers: prompts that are
shorter and longer than the window, in pieces and in batches, and decoding beyond the window."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm_ffi

from tests.compiler import schemes
from tests.compiler.families import BOUND
from tests.compiler.family_case import FamilyCase
from tests.compiler.parity import reference
from tests.compiler.pipeline import CPU_TARGET, compile_library
from tests.compiler.running import Array, Library, random_model
from tests.compiler.unequal_passes import check_unequal_passes
from tests.compiler.windowed_cases import WINDOWED

pytestmark = pytest.mark.slow
_TEXT = 60


@dataclass(frozen=True, kw_only=True)
class _Compiled:
    """A library, its weights, texts of `_TEXT` tokens, and their logits as they should be."""

    path: Path
    weights: dict[str, Array]
    texts: list[list[int]]
    logits: list[Array]
    allowed: float

    def library(self) -> Library:
        return Library.load(self.path, self.weights)

    def check(self, found: Array, text: int, place: int) -> None:
        np.testing.assert_allclose(found, self.logits[text][place], rtol=0, atol=self.allowed, err_msg=f"at {place}")


def _compile(case: FamilyCase, directory: Path, kernels: Path) -> _Compiled:
    config = dict(case.config)
    model = random_model(config)
    state = {name: tensor.detach().numpy() for name, tensor in model.named_parameters()}
    weights = schemes.stored(model.config.to_dict(), schemes.scheme("q0f32"), state)
    path = compile_library(config, "q0f32", CPU_TARGET, directory, kernel_store=kernels, overrides=case.overrides)
    random = np.random.default_rng(1)
    texts = [[int(token) for token in random.integers(0, config["vocab_size"], _TEXT)] for _ in range(3)]
    logits = [reference(model, text) for text in texts]
    largest = max(float(np.abs(each).max()) for each in logits)
    return _Compiled(path=path, weights=weights, texts=texts, logits=logits, allowed=BOUND * largest)


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=() if case.in_ci else pytest.mark.exhaustive) for name, case in WINDOWED.items()],
)
def compiled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, kernel_store: Path) -> _Compiled:
    return _compile(WINDOWED[request.param], tmp_path_factory.mktemp("windows"), kernel_store)


def _add(library: Library, sequence: int, tokens: Sequence[int]) -> Array:
    return library.decode(sequence, tokens[0]) if len(tokens) == 1 else library.prefill(sequence, tokens)


def test_prompts_of_any_length(compiled: _Compiled) -> None:
    library = compiled.library()
    for length in (1, 15, 16, 17, 33, 60):
        library.add(0)
        compiled.check(_add(library, 0, compiled.texts[0][:length]), 0, length - 1)
        tvm_ffi.get_global_func("vm.builtin.kv_state_remove_sequence")(library.cache, 0)


@pytest.mark.parametrize("pieces", [[20, *[1] * 40], [8] * 7, [15, 1, 16, 17, 2, 9], [40, 3, 16, 1]])
def test_texts_in_pieces(compiled: _Compiled, pieces: list[int]) -> None:
    library = compiled.library()
    library.add(0)
    begin = 0
    for count in pieces:
        compiled.check(_add(library, 0, compiled.texts[0][begin : begin + count]), 0, begin + count - 1)
        begin += count


def test_sequences_of_different_lengths_in_one_pass(compiled: _Compiled) -> None:
    prefills = ([25, 4, 17], [1, 20, 3], [5, 17, 1])
    check_unequal_passes(
        compiled.library(), compiled.texts, compiled.check, prefills=prefills, decoded=4, verified=[2, 5, 18]
    )


def test_sequences_share_a_prefix(compiled: _Compiled) -> None:
    library = compiled.library()
    library.add(0)
    library.prefill(0, compiled.texts[0][:40])
    tvm_ffi.get_global_func("vm.builtin.kv_state_fork_sequence")(library.cache, 0, 1, 30)
    for sequence, begin in ((0, 40), (1, 30)):
        compiled.check(library.prefill(sequence, compiled.texts[0][begin : begin + 8]), 0, begin + 7)
    embedded = library.embed([compiled.texts[0][48], compiled.texts[0][38]])[:, None]
    logits = library.run("batch_decode", [0, 1], [1, 1], embedded)[:, 0]
    compiled.check(logits[0], 0, 48)
    compiled.check(logits[1], 0, 38)


def test_a_token_tree_is_refused(compiled: _Compiled) -> None:
    library = compiled.library()
    library.add(0)
    library.prefill(0, compiled.texts[0][:20])
    embedded = library.embed(compiled.texts[0][20:23])[None]

    def verify_a_tree() -> None:
        begin, shape = tvm_ffi.get_global_func("vm.builtin.kv_state_begin_forward"), tvm_ffi.Shape
        begin(library.cache, shape([0]), shape([3]), shape([-1, 0, 0]))
        library.machine["batch_verify"](*_tensors(embedded), library.cache, library.parameters)

    # A cache whose layers all have the window refuses the pass itself; else a kernel does.
    with pytest.raises(Exception, match=r"tree_mask|Tree attention does not support sliding window"):
        verify_a_tree()


def _tensors(*arrays: Array) -> list[Any]:
    import tvm

    return [tvm.runtime.tensor(np.ascontiguousarray(array)) for array in arrays]
