"""How a phase runs: which implementation an entry gets, and where a workspace's passes run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import tvm

from mlcbuild.compiler.phases import places
from mlcbuild.compiler.phases.entry import Entry, PassOrigin
from mlcbuild.compiler.phases.pipeline import Passes, PhaseContext, Run, apply
from mlcbuild.compiler.phases.placed import PlacedPass, added_passes
from mlcbuild.errors import StageError
from tests.compiler.pipeline import CPU_TARGET

ENTRIES = (
    Entry(name="First", origin=PassOrigin.MLCBUILD),
    Entry(name="Second", origin=PassOrigin.MLCBUILD, backend=True),
    Entry(name="Nothing", origin=PassOrigin.MLC_LLM, not_needed="Nobody asks for it."),
    Entry(name="Third", origin=PassOrigin.TVM, backend=True),
)
CONTEXT = PhaseContext(target=tvm.target.Target(dict(CPU_TARGET)))


def noting(word: str) -> Run:
    """A pass that appends a word to the module's attribute `ran`."""

    def run(module: tvm.IRModule, context: PhaseContext) -> tvm.IRModule:
        assert context is CONTEXT
        before = str(module.attrs["ran"]) + " " if module.attrs and "ran" in module.attrs else ""
        return module.with_attr("ran", before + word)

    return run


def ran(
    common: Passes,
    backend: Passes | None = None,
    functions: tuple[Run, ...] = (),
    at: tuple[dict[str, str], ...] = (),
) -> str:
    added = added_passes(functions, at)
    made = apply(tvm.IRModule(), ENTRIES, CONTEXT, common=common, backend=backend, added=added)
    return str(made.attrs["ran"])


COMMON = {"First": noting("first"), "Second": noting("second")}


def test_entries_run_in_their_order_and_one_that_nobody_implements_does_nothing() -> None:
    assert ran(COMMON) == "first second"


def test_a_backends_implementation_runs_in_place_of_the_common_one() -> None:
    backend = {"Third": noting("own-third"), "Second": noting("own-second")}
    assert ran(COMMON, backend) == "first own-second own-third"


def test_a_backend_places_passes_of_its_own_between_the_entry_and_what_a_workspace_adds() -> None:
    backend: Passes = {
        "Before": PlacedPass(run=noting("own-before"), before="Second"),
        "After": PlacedPass(run=noting("own-after"), after="Second"),
        "AfterNothing": PlacedPass(run=noting("own-last"), after="Nothing"),
    }
    at = ({"function": "a:a", "before": "Second"}, {"function": "a:b", "after": "Second"})
    assert ran(COMMON, backend) == "first own-before second own-after own-last"
    functions = (noting("added-before"), noting("added-after"))
    assert ran(COMMON, backend, functions, at) == (
        "first added-before own-before second own-after added-after own-last"
    )


@pytest.mark.parametrize(
    ("common", "backend", "told"),
    [
        ({**COMMON, "Frist": noting("x")}, {}, 'the common passes implement "Frist", which is no pass of this phase'),
        (COMMON, {"Thrid": noting("x")}, 'passes of the backend implement "Thrid", which is no pass of this phase'),
        (COMMON, {"First": noting("x")}, '"First", which is the same for all backends'),
        (COMMON, {"Nothing": noting("x")}, '"Nothing", which its entry says is not needed'),
        ({}, {}, 'nothing implements "First"'),
        (
            COMMON,
            {"Own": PlacedPass(run=noting("x"), after="Frist")},
            '"Own" is placed beside "Frist", which is no pass',
        ),
        (COMMON, {"Own": PlacedPass(run=noting("x"))}, '"Own" is placed neither after nor before'),
        (
            COMMON,
            {"First": PlacedPass(run=noting("x"), after="Third")},
            '"First" is placed, and there is a pass of that',
        ),
    ],
)
def test_implementations_that_do_not_fit_the_entries_are_refused(common: Passes, backend: Passes, told: str) -> None:
    with pytest.raises(StageError, match=told):
        ran(common, backend)


def test_a_misspelt_entry_is_told_with_what_a_backend_may_do() -> None:
    with pytest.raises(StageError) as raised:
        ran(COMMON, {"Thrid": noting("x")})
    assert raised.value.advice == (
        "a backend implements: Second, Third",
        "a pass of another name is a PlacedPass, which says after or before which pass it runs",
    )


def test_an_entry_is_either_for_backends_or_not_needed() -> None:
    with pytest.raises(ValueError, match="both"):
        Entry(name="Both", origin=PassOrigin.MLCBUILD, backend=True, not_needed="Nobody asks for it.")


def test_added_passes_run_beside_their_entries_in_the_order_named() -> None:
    functions = (noting("a"), noting("b"), noting("c"))  # of m:a, m:b, m:c
    at = (
        {"function": "m:b", "before": "Second"},
        {"function": "m:a", "before": "Second"},
        {"function": "m:c", "after": "First"},
    )
    assert ran(COMMON, None, functions, at) == "first c b a second"


def test_an_entry_that_does_nothing_is_a_place_too() -> None:
    at = ({"function": "m:a", "after": "Nothing"}, {"function": "m:a", "before": "First"})
    assert ran(COMMON, None, (noting("a"),), at) == "a first second a"


def _failing(error: Exception) -> Run:
    def run(module: tvm.IRModule, context: PhaseContext) -> tvm.IRModule:
        raise error

    return run


def _one_argument(module: tvm.IRModule) -> tvm.IRModule:
    return module


AT = ({"function": "m:a", "after": "First"},)


def test_what_an_added_pass_raises_comes_through_and_says_which_it_was() -> None:
    with pytest.raises(ValueError, match="wrong") as raised:
        ran(COMMON, None, (_failing(ValueError("wrong")),), AT)
    assert raised.value.__notes__ == ["raised by the pass m:a, after First"]
    with pytest.raises(StageError, match=r"^unusable$"):
        ran(COMMON, None, (_failing(StageError("unusable")),), AT)


def test_only_a_workspaces_pass_is_told_how_passes_are_called() -> None:
    with pytest.raises(TypeError) as raised:
        ran(COMMON, None, (_failing(TypeError("wrong type")),), AT)
    assert raised.value.__notes__[1].startswith("a pass is a function (module, context)")
    with pytest.raises(TypeError) as raised:
        ran(COMMON, {"Own": PlacedPass(run=_failing(TypeError("wrong type")), after="First")})
    assert raised.value.__notes__ == ["raised by the pass Own, after First"]


def test_a_backends_own_pass_is_told_of_as_a_workspaces_is() -> None:
    backend: Passes = {"Own": PlacedPass(run=_failing(ValueError("wrong")), after="First")}
    with pytest.raises(ValueError, match="wrong") as raised:
        ran(COMMON, backend)
    assert raised.value.__notes__ == ["raised by the pass Own, after First"]
    with pytest.raises(StageError, match="the pass Own, before Third returned NoneType, not a module"):
        ran(COMMON, {"Own": PlacedPass(run=lambda *_: None, before="Third")})


@pytest.mark.parametrize("function", [_one_argument, None])
def test_what_is_no_pass_is_told_how_one_is_called(function: Callable[..., object] | None) -> None:
    with pytest.raises(TypeError) as raised:
        ran(COMMON, None, (function,), AT)  # type: ignore[arg-type]
    assert raised.value.__notes__[1].startswith("a pass is a function (module, context)")


def test_every_place_is_of_one_phase() -> None:
    names = [entry.name for entries in places.PHASES.values() for entry in entries]
    assert len(names) == len(set(names)) == len(places.PLACES)
    assert not places.OF_KERNELS & set(names)


def test_the_page_lists_every_place_in_order() -> None:
    page = (Path(__file__).parents[2] / "docs/pipeline.md").read_text(encoding="utf-8")
    for phase, entries in places.PHASES.items():
        stage = "Lower" if phase == "phase5" else phase.capitalize()
        names = ", ".join(f"({entry.name})" if entry.not_needed else entry.name for entry in entries)
        assert f"\n| {stage} | {names} |\n" in page
