"""What `--from-cache-only` lists: the actions without a cached result, and why each would have to run."""

from __future__ import annotations

from collections.abc import Iterable

from mlcbuild.cli.console.action_names import title
from mlcbuild.cli.output import text
from mlcbuild.cli.output.terminal import Style
from mlcbuild.engine.build_events import ActionFinished, ActionStatus, Cause

_MOST_NAMED = 3
_REASONS = {
    Cause.FIRST: "never built here",
    Cause.CHANGED: "changed since the last build here",
    Cause.NO_RESULT: "unchanged, but no cache has its result any more",
    Cause.OUTPUTS_GONE: "the files of its result are no longer in any cache",
    Cause.REMADE: "no cache keeps the files of its result, and they are not here",
    Cause.NEVER_CACHED: "its result is never kept, so it runs in every build",
}


def reason_not_cached(event: ActionFinished) -> str:
    return _REASONS.get(event.cause, event.message) if event.cause else event.message


def not_cached_lines(finished: Iterable[ActionFinished], *, style: Style) -> list[str]:
    """`not cached: //:package Export: …`. Equal reasons of one mnemonic of a target share a line, and the actions are
    named below it.
    """
    grouped: dict[tuple[str, str, str], list[ActionFinished]] = {}
    for event in _each(finished):
        grouped.setdefault((event.owner, event.mnemonic, reason_not_cached(event)), []).append(event)
    head = style.error("not cached:")
    lines = []
    for (owner, mnemonic, reason), events in grouped.items():
        if len(events) == 1:
            lines.append(f"{head} {text.printable(title(events[0]))}: {reason}")
            continue
        lines.append(f"{head} {owner}: {len(events):,} {mnemonic}: {reason}")
        names = [text.printable(title(event).removeprefix(f"{owner} {mnemonic} ")) for event in events]
        lines += text.listed(text.first_of(names, _MOST_NAMED), start="  ", indent=2)
    return lines


def not_cached_documents(finished: Iterable[ActionFinished]) -> list[dict[str, object]]:
    """The same as JSON, each action by itself."""
    return [
        {
            "action": event.identifier,
            "title": title(event),
            "mnemonic": event.mnemonic,
            "target": event.owner,
            "reason": reason_not_cached(event),
        }
        for event in _each(finished)
    ]


def _each(finished: Iterable[ActionFinished]) -> list[ActionFinished]:
    found = [event for event in finished if event.status is ActionStatus.NOT_CACHED and not event.shared_with]
    return sorted(found, key=lambda event: (event.owner, event.identifier))
