"""Prints a comparison: a table of stages, why actions differ, and what only one side has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mlcbuild.cli.diff.comparison import ComparedAction, Outcome
from mlcbuild.cli.diff.ir import OutputDifference
from mlcbuild.cli.diff.side import Side
from mlcbuild.cli.explain.output import explanation_lines
from mlcbuild.cli.log.listings import table
from mlcbuild.cli.output import text
from mlcbuild.cli.output.terminal import Style
from mlcbuild.cli.show.ir import colored_difference

_MOST_NAMED = 10
_COLUMNS = (
    (Outcome.EQUAL, "EQUAL"),
    (Outcome.DIFFERS, "DIFFER"),
    (Outcome.FOLLOWS, "FOLLOW"),
    (Outcome.NOT_KNOWN, "NOT KNOWN"),
    (Outcome.ONLY_BEFORE, "ONLY BEFORE"),
    (Outcome.ONLY_NOW, "ONLY NOW"),
)


def comparison_lines(
    before: Side,
    now: Side,
    actions: Sequence[ComparedAction],
    diffs: Mapping[str, list[str]],
    version_of: Callable[[str], str],
    style: Style,
) -> list[str]:
    """What a person reads of a comparison. `diffs` are the differences of source files."""
    lines = [style.bold(text.printable(f"from {before.title} to {now.title}"))]
    if not actions:
        return [*lines, "neither has actions"]
    if all(each.outcome is Outcome.EQUAL for each in actions):
        return [*lines, f"equal: {text.plural(len(actions), 'action')} with the same keys"]
    lines += _stages(actions)
    explained = [each.explanation for each in actions if each.outcome is Outcome.DIFFERS and each.explanation]
    if explained:
        lines += ["", *explanation_lines(explained, diffs, version_of)]
    lines += _named("only before", [each for each in actions if each.outcome is Outcome.ONLY_BEFORE])
    lines += _named("only now", [each for each in actions if each.outcome is Outcome.ONLY_NOW])
    return lines


def _stages(actions: Sequence[ComparedAction]) -> list[str]:
    """A row for each mnemonic, with the columns that are not empty."""
    counts: dict[str, Counter[Outcome]] = {}
    for each in actions:
        counts.setdefault(each.shown.mnemonic, Counter())[each.outcome] += 1
    columns = [(outcome, title) for outcome, title in _COLUMNS if any(count[outcome] for count in counts.values())]
    rows = [
        (*(f"{count[outcome]:,}" if count[outcome] else "-" for outcome, _ in columns), mnemonic)
        for mnemonic, count in counts.items()
    ]
    return table((*(title for _, title in columns), "STAGE"), rows, right=range(len(columns)))


def _named(title: str, actions: Sequence[ComparedAction]) -> list[str]:
    if not actions:
        return []
    names = text.first_of([text.printable(each.shown.title) for each in actions], _MOST_NAMED)
    return ["", f"{title}:", *(f"  {name}" for name in names)]


def ir_lines(differences: Sequence[OutputDifference], style: Style) -> list[str]:
    """The differences one after the other, as `git diff` has them."""
    return [line for each in differences for line in colored_difference(each.lines, style)]


def comparison_document(
    before: Side,
    now: Side,
    actions: Sequence[ComparedAction],
    diffs: Mapping[str, list[str]],
    differences: Sequence[OutputDifference] | None,
) -> dict[str, Any]:
    """The comparison as JSON. `differences` are None if the IR was not compared."""
    document: dict[str, Any] = {
        "before": before.title,
        "now": now.title,
        "counts": {outcome.value: sum(each.outcome is outcome for each in actions) for outcome in Outcome},
        "actions": [_document(each, diffs) for each in actions if each.outcome is not Outcome.EQUAL],
        "equal": [each.shown.identifier for each in actions if each.outcome is Outcome.EQUAL],
    }
    if differences is not None:
        document["ir"] = [
            {"action": each.action, "path": each.path, "difference": list(each.lines), "missing": each.missing}
            for each in differences
        ]
    return document


def _document(compared: ComparedAction, diffs: Mapping[str, list[str]]) -> dict[str, Any]:
    explained = compared.explanation.document(diffs) if compared.explanation else {}
    return {
        "outcome": compared.outcome.value,
        "mnemonic": compared.shown.mnemonic,
        "title": compared.shown.title,
        "before": compared.before.identifier if compared.before else None,
        "now": compared.now.identifier if compared.now else None,
        "key_before": compared.before.key if compared.before else None,
        "key_now": compared.now.key if compared.now else None,
        "has_equal_outputs": compared.has_equal_outputs,
        "why": explained.get("why", ""),
        "differences": explained.get("differences", []),
    }
