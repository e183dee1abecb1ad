"""The build report: the outcome of a build as JSON for other programs (`--build-report`, `--output json`).

::

    {
      "success": bool, "exit_code": int, "wall_seconds": float, "invocation_id": UUID,
      "digest_function": "blake3" or "sha256", of all digests and keys; "" if no build began,
      "targets": {label: {"success": bool, "outputs": [path, …], "error": str,
                          "output_files": [{"path": str, "digest": "hash/size", "executable": bool}, …],
                          "ran": int, "cached": int, "seconds": float}},
      "needed_targets": {label: {"ran": int, "cached": int, "seconds": float}},
      "actions": {"total": int, "up_to_date": int, "disk_hits": int, "remote_hits": int,
                  "executed_local": int, "executed_ray": int, "not_cached": int, "failed": int,
                  "skipped": int},
      "skipped": {label: reason, …},
      "keys": {action: key, …},
      "action_results": {action: {"title": str, "mnemonic": str, "target": str, "status": str, "cause": str or null,
                                  "start": float, "seconds": float, "shared_with": str, "details": {…},
                                  "output_files": [as above, by their paths in the result]}},
      "not_cached": [{"action": str, "title": str, "mnemonic": str, "target": str, "reason": str}, …],
      "critical_path": [{"action": str, "title": str, "mnemonic": str, "seconds": float}, …],
      "ran": {"run_seconds": float, "queued_seconds": float, "input_seconds": float, "output_seconds": float,
              "peak_bytes": int, "nodes": {name: actions, …}},
      "bytes": {"downloaded": int, "uploaded": int},
      "remote": null, or {"addresses": [str, …], "hits": int, "misses": {reason: int}, "results_uploaded": int,
                          "uploads_dropped": int, "blobs_downloaded": int, "blobs_uploaded": int, "blobs_wrong": int,
                          "blobs_lost": int, "retries": int, "failures": int}
    }

Of a target, `ran` and `cached` count its own actions, and `seconds` is how long those that ran took together; where
targets share an action, it is that of one of them. `needed_targets` are those that were not asked for and have actions.
The outer `ran` sums the seconds of all actions that ran; `peak_bytes` is the largest memory of one of them, `nodes`
counts the actions of each other machine. Paths are relative to the workspace. `error` is "" for a target that was
built. `skipped` are targets that wildcards match and that cannot be built for their platform. A command that ends
before its build begins, for example with an error in a BUILD.toml, reports no targets and no actions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from mlcbuild.cli.console.action_names import title, why_failed
from mlcbuild.cli.console.not_cached import not_cached_documents, reason_not_cached
from mlcbuild.cli.console.remote_summary import RemoteSummary, remote_document
from mlcbuild.cli.exit_codes import ExitCode
from mlcbuild.cli.reports.event_log import file_document
from mlcbuild.engine.build_events import (
    ActionFinished,
    ActionStatus,
    BuildEvent,
    BuildFinished,
    BuildStarted,
    TargetFinished,
)
from mlcbuild.engine.target_totals import TargetTotal, TargetTotals

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
        self.skipped: Mapping[str, str] = {}  # requested targets that cannot be built, with the reason
        self._targets: dict[str, TargetFinished] = {}
        self._totals = TargetTotals()
        self._failures: dict[str, ActionFinished] = {}
        self._digest_function = ""
        self._ran: list[ActionFinished] = []
        self._finished: BuildFinished | None = None

    def __call__(self, event: BuildEvent) -> None:
        match event:
            case BuildStarted():
                self._invocation = event.invocation
                self._digest_function = event.digest_function
            case ActionFinished():
                self._totals.add(event)
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
        ended = sorted(self._totals.actions(), key=lambda action: action.identifier)
        counts = dict(finished.counts) if finished else dict(Counter(action.status for action in ended))
        actions = {name: counts.get(status, 0) for status, name in _NAMES.items()}
        return {
            "success": exit_code is ExitCode.OK,
            "exit_code": int(exit_code),
            "wall_seconds": round(wall_seconds, 3),
            "invocation_id": self._invocation,
            "digest_function": self._digest_function,
            "targets": {
                label: {
                    "success": event.success,
                    "outputs": list(event.outputs),
                    "error": self._error(event),
                    "output_files": [file_document(entry) for entry in event.output_files],
                    **_total_document(self._totals.of(label)),
                }
                for label, event in sorted(self._targets.items())
            },
            "needed_targets": {
                label: _total_document(self._totals.of(label))
                for label in sorted(set(self._totals.owners()) - self._targets.keys())
            },
            "actions": {"total": sum(actions.values()), **actions},
            "skipped": dict(sorted(self.skipped.items())),
            "keys": {action.identifier: action.key for action in ended if action.key},
            "action_results": {action.identifier: _action_document(action) for action in ended},
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
        return f"{event.error}: {why_failed(failed)}"


def _total_document(total: TargetTotal) -> dict[str, object]:
    return {"ran": total.ran, "cached": total.cached, "seconds": round(total.seconds, 3)}


def _action_document(action: ActionFinished) -> dict[str, object]:
    return {
        "title": title(action),
        "mnemonic": action.mnemonic,
        "target": action.owner,
        "status": action.status.value,
        "cause": action.cause.value if action.cause else None,
        "start": round(action.start, 6),
        "seconds": round(action.seconds, 6),
        "shared_with": action.shared_with,
        "details": dict(action.details),
        "output_files": [file_document(entry) for entry in action.output_files],
    }
