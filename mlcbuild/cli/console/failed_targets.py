"""The lines about targets that were not built. Those with one reason are told together: targets that share or need an
action that failed, and, as a number, all that had not begun when the build ended.
"""

from __future__ import annotations

from mlcbuild.cli.console.action_names import title, without_label
from mlcbuild.cli.output import text
from mlcbuild.cli.output.terminal import Style
from mlcbuild.engine.build_events import ActionFinished, ActionStatus, TargetFinished
from mlcbuild.engine.failure_propagation import INTERRUPTED, STOPPED

_MOST_NAMED = 20
_NO_REASON = "no reason given"


class FailedTargets:
    """Keeps targets that fail one after the other for one reason, until something else is to be printed."""

    def __init__(self) -> None:
        self._failed_with: dict[str, str] = {}  # a failed action, and the equal one that ran
        self._titles: dict[str, str] = {}  # of failed actions
        self._pending: list[TargetFinished] = []
        self._reason = ("", "")  # of the pending ones: the action that ran and others share, or the message

    def apply(self, event: ActionFinished) -> None:
        if event.status is ActionStatus.FAILED and (event.shared_with or event.shared_by):
            self._titles[event.identifier] = title(event)
            self._failed_with[event.identifier] = event.shared_with or event.identifier

    def failed(self, event: TargetFinished, style: Style) -> list[str]:
        """Take the end of a target. Returns the lines to print now, which may be about others before it."""
        has_begun = not event.error.startswith((STOPPED, INTERRUPTED))
        cause = self._failed_with.get(event.blocked_by, "") if has_begun else ""
        reason = (cause, "" if cause else event.error)
        lines = self.lines(style) if reason != self._reason else []
        self._reason = reason
        self._pending.append(event)
        return lines

    def lines(self, style: Style) -> list[str]:
        """The lines about the targets that are kept, which are kept no longer."""
        pending, (cause, message) = self._pending, self._reason
        self._pending, self._reason = [], ("", "")
        if len(pending) < 2:
            return [line for event in pending for line in _alone(event, style)]
        head = f"{style.error('error:')} {len(pending):,} targets were not built: "
        if message.startswith((STOPPED, INTERRUPTED)):
            return [head + text.printable(message)]
        shared = f"they share {without_label(self._titles.get(cause, cause))}, which failed"
        first, *rest = [shared] if cause else text.printable(message).splitlines() or [_NO_REASON]
        labels = text.first_of([text.printable(event.label) for event in pending], _MOST_NAMED)
        return [head + first, *(f"  {line}" for line in rest), *text.listed(labels, start="  ", indent=2)]


def _alone(event: TargetFinished, style: Style) -> list[str]:
    first, *rest = text.printable(event.error).splitlines() or [_NO_REASON]
    return [f"{style.error('error:')} {event.label} was not built: {first}", *(f"  {line}" for line in rest)]
