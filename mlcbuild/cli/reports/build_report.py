"""The build report: the outcome of a build as JSON for other programs (`--build-report`, `--output json`).

::

    {
      "success": bool, "exit_code": int, "wall_seconds": float, "invocation_id": UUID,
      "targets": {label: {"success": bool, "outputs": [path, …], "error": str}},
      "actions": {"total": int, "up_to_date": int, "disk_hits": int, "remote_hits": int,
                  "executed_local": int, "executed_ray": int, "not_cached": int, "failed": int,
                  "skipped": int},
      "keys": {action: key, …},
      "not_cached": [{"action": str, "title": str, "mnemonic": str, "target": str, "reason": str}, …],
      "critical_path": [{"action": str, "title": str, "mnemonic": str, "seconds": float}, …],
      "ran": {"run_seconds": float, "queued_seconds": float, "input_seconds": float, "output_seconds": float,
              "peak_bytes": int, "nodes": {name: actions, …}},
      "bytes": {"downloaded": int, "uploaded": int},
      "remote": null, or {"addresses": [str, …], "hits": int, "misses": {reason: int}, "results_uploaded": int,
                          "uploads_dropped": int, "blobs_downloaded": int, "blobs_uploaded": int, "blobs_wrong": int,
                          "blobs_lost": int, "retries": int, "failures": int}
    }

`ran` sums the seconds of all actions that ran; `peak_bytes` is the largest memory of one of them, `nodes` counts the
actions of each other machine. Paths are relative to the workspace. `error` is "" for a target that was built. A command
that ends before its build begins, for example with an error in a BUILD.toml, reports no targets and no actions.
"""

from __future__ import annotations

from collections import Counter

from mlcbuild.cli.console.action_names import title
from mlcbuild.cli.console.not_cached import not_cached_documents, reason_not_cached
from mlcbuild.cli.console.remote_summary import RemoteSummary, remote_document
from mlcbuild.cli.exit_codes import ExitCode
from mlcbuild.engine.build_events import (
    ActionFinished,
    ActionStatus,
    BuildEvent,
    BuildFinished,
    BuildStarted,
    TargetFinished,
)

_NAMES: dict[ActionStatus, str] = {
    ActionStatus.UP_TO_DATE: "up_to_date",
    ActionStatus.DISK_HIT: "disk_hits",
    ActionStatus.REMOTE_HIT: "remote_hits",
    ActionStatus.EXECUTED_LOCAL: "executed_local",
    ActionStatus.EXECUTED_RAY: "executed_ray",
    ActionStatus.NOT_CACHED: "not_cached",
    ActionStatus.FAILED: "failed",
    ActionStatus.SKIPPED: "skipped",
}


class BuildReport:
    """Collects the events of one build. `document` also works for a build that was cut short."""

    def __init__(self, *, invocation: str) -> None:
        self._invocation = invocation
        self._targets: dict[str, TargetFinished] = {}
        self._statuses: dict[str, ActionStatus] = {}  # by action; one that has run again has its last
        self._failures: dict[str, ActionFinished] = {}
        self._keys: dict[str, str] = {}
        self._ran: list[ActionFinished] = []
        self._finished: BuildFinished | None = None

    def __call__(self, event: BuildEvent) -> None:
        match event:
            case BuildStarted():
                self._invocation = event.invocation
            case ActionFinished():
                self._statuses[event.identifier] = event.status
                if event.key:
                    self._keys[event.identifier] = event.key
                if event.executor:
                    self._ran.append(event)
                if event.status in (ActionStatus.FAILED, ActionStatus.NOT_CACHED):
                    self._failures[event.identifier] = event
            case TargetFinished():
                self._targets[event.label] = event
            case BuildFinished():
                self._finished = event
            case _:
                pass

    def document(
        self, *, exit_code: ExitCode, wall_seconds: float, remote: RemoteSummary | None = None
    ) -> dict[str, object]:
        """The report as a JSON object. `wall_seconds` is that of the whole command."""
        finished = self._finished
        counts = dict(finished.counts) if finished else dict(Counter(self._statuses.values()))
        actions = {name: counts.get(status, 0) for status, name in _NAMES.items()}
        return {
            "success": exit_code is ExitCode.OK,
            "exit_code": int(exit_code),
            "wall_seconds": round(wall_seconds, 3),
            "invocation_id": self._invocation,
            "targets": {
                label: {"success": event.success, "outputs": list(event.outputs), "error": self._error(event)}
                for label, event in sorted(self._targets.items())
            },
            "actions": {"total": sum(actions.values()), **actions},
            "keys": dict(sorted(self._keys.items())),
            "not_cached": not_cached_documents(self._failures.values()),
            "critical_path": [
                {
                    "action": step.identifier,
                    "title": title(step),
                    "mnemonic": step.mnemonic,
                    "seconds": round(step.seconds, 3),
                }
                for step in (finished.critical_path if finished else ())
            ],
            "ran": {
                "run_seconds": round(sum(action.time - action.start for action in self._ran), 3),
                "queued_seconds": round(sum(action.queued_seconds for action in self._ran), 3),
                "input_seconds": round(sum(action.input_seconds for action in self._ran), 3),
                "output_seconds": round(sum(action.output_seconds for action in self._ran), 3),
                "peak_bytes": max((action.peak_bytes for action in self._ran), default=0),
                "nodes": dict(sorted(Counter(action.node for action in self._ran if action.node).items())),
            },
            "bytes": {
                "downloaded": finished.bytes_downloaded if finished else 0,
                "uploaded": finished.bytes_uploaded if finished else 0,
            },
            "remote": remote_document(remote) if remote else None,
        }

    def _error(self, event: TargetFinished) -> str:
        """Why a target was not built, with the failed action's message, for readers without a console."""
        failed = self._failures.get(event.blocked_by)
        if failed is not None and failed.status is ActionStatus.NOT_CACHED:
            return f"{title(failed)}: {reason_not_cached(failed)}"
        if failed is None or not failed.message or not event.error.startswith(f"{title(failed)} failed"):
            return event.error
        # An executor names the action that ran, which may be another one that shares the run.
        message = failed.message.removeprefix(failed.shared_with or failed.identifier).lstrip(": ")
        return f"{event.error}: {message}"
