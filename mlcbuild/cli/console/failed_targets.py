"""The lines about targets that were not built. Targets that failed by one action that they share are told together."""

from __future__ import annotations

from mlcbuild.cli.console.action_names import title, without_label
from mlcbuild.cli.output import text
from mlcbuild.cli.output.terminal import Style
from mlcbuild.engine.build_events import ActionFinished, ActionStatus, TargetFinished


class FailedTargets:
    """Keeps targets that fail one after the other by equal actions, until something else is to be printed."""

    def __init__(self) -> None:
        self._failed_with: dict[str, str] = {}  # a failed action, and the equal one that ran
        self._titles: dict[str, str] = {}  # of failed actions
        self._pending: list[TargetFinished] = []
        self._cause = ""  # of the pending ones: the action that ran

    def apply(self, event: ActionFinished) -> None:
        if event.status is ActionStatus.FAILED and (event.shared_with or event.shared_by):
            self._titles[event.identifier] = title(event)
            self._failed_with[event.identifier] = event.shared_with or event.identifier

    def failed(self, event: TargetFinished, style: Style) -> list[str]:
        """Take the end of a target. Returns the lines to print now, which may be about others before it."""
        cause = self._failed_with.get(event.blocked_by, "")
        lines = self.lines(style) if not cause or cause != self._cause else []
        if not cause:
            return [*lines, *_alone(event, style)]
        self._cause = cause
        self._pending.append(event)
        return lines

    def lines(self, style: Style) -> list[str]:
        """The lines about the targets that are kept, which are kept no longer."""
        pending, cause = self._pending, self._cause
        self._pending, self._cause = [], ""
        if len(pending) < 2:
            return [line for event in pending for line in _alone(event, style)]
        shared = without_label(self._titles.get(cause, cause))
        head = f"{style.error('error:')} {len(pending):,} targets were not built: they share {shared}"
        labels = [text.printable(event.label) for event in pending]
        return [f"{head}, which failed", *text.listed(labels, start="  ", indent=2)]


def _alone(event: TargetFinished, style: Style) -> list[str]:
    first, *rest = text.printable(event.error).splitlines() or ["no reason given"]
    return [f"{style.error('error:')} {event.label} was not built: {first}", *(f"  {line}" for line in rest)]
