"""The part of docs/scheduling.md that is drawn from the tables of permitted moves."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mlcbuild.engine.transitions import (
    ACTION_TRANSITIONS,
    SOURCE_TRANSITIONS,
    TARGET_TRANSITIONS,
    NodeState,
    Transition,
)

PAGE = Path(__file__).parents[2] / "docs/scheduling.md"
_BEGIN = "<!-- Drawn from mlcbuild/engine/transitions.py, as tests/engine/test_transitions.py says. -->\n"
_END = "<!-- End of what is drawn. -->\n"


def drawn_part(page: str) -> str:
    """What the page shows now."""
    return page.partition(_BEGIN)[2].partition(_END)[0]


def with_drawn_part(page: str) -> str:
    """The page as it should be."""
    before, begin, rest = page.partition(_BEGIN)
    assert begin, f"{PAGE} does not say where its drawn part begins"
    return before + _BEGIN + expected_part() + _END + rest.partition(_END)[2]


def expected_part() -> str:
    """The diagram of actions, then a table of each kind of node."""
    return "\n".join(
        [
            *_diagram(ACTION_TRANSITIONS),
            "",
            *_table("an action", ACTION_TRANSITIONS),
            "",
            *_table("a target", TARGET_TRANSITIONS),
            "",
            *_table("a source file", SOURCE_TRANSITIONS),
            "",
        ]
    )


def _diagram(transitions: Sequence[Transition]) -> list[str]:
    """Every move but those to SKIPPED, which are possible from most states and would hide the others."""
    shown = [each for each in transitions if each.after is not NodeState.SKIPPED]
    named = dict.fromkeys(state for each in shown for state in (each.before, each.after) if " " in state.value)
    return [
        "```mermaid",
        "stateDiagram-v2",
        *(f'    state "{state.value}" as {_name(state)}' for state in named),
        f"    [*] --> {_name(shown[0].before)}",
        *(f"    {_name(each.before)} --> {_name(each.after)}" for each in shown),
        "```",
    ]


def _name(state: NodeState) -> str:
    return state.value.replace(" ", "_")


def _table(kind: str, transitions: Sequence[Transition]) -> list[str]:
    rows = [f"| {each.before.value} | {each.after.value} | {each.cause} |" for each in transitions]
    return [f"| {kind} moves from | to | when |", "|---|---|---|", *rows]
