"""Reports how each action ended and why it ran, and remembers it for the next build."""

from __future__ import annotations

from collections.abc import Mapping

from mlcbuild.engine.action import CachePolicy
from mlcbuild.engine.action_cache_lookup import ActionCacheLookup
from mlcbuild.engine.action_runner import ActionRunner, Attempt
from mlcbuild.engine.build_event_publisher import BuildEventPublisher
from mlcbuild.engine.build_events import ActionStatus, Cause
from mlcbuild.engine.executor import ExecutionOutcome, FileEntry
from mlcbuild.engine.instructions import Ending, ReportAction
from mlcbuild.engine.key_cache import KeyCache
from mlcbuild.engine.last_build import LastBuild
from mlcbuild.engine.nodes import ActionNode

_WITH_RESULT = (Ending.EXECUTED, Ending.FOUND, Ending.SHARED)


class ActionReporter:
    """Used in the thread of the build. `nodes` are the scheduler's, by identifier.

    The driver adds an action to `found_remotely` where the remote had its result, to `keyless` where it has no key
    because of this machine, and to `not_cached` where it would have to run and must not. It does so before the action
    ends.
    """

    def __init__(
        self,
        *,
        nodes: Mapping[str, ActionNode],
        runner: ActionRunner,
        lookups: ActionCacheLookup,
        key_cache: KeyCache,
        last_build: LastBuild,
        build_events: BuildEventPublisher,
    ) -> None:
        self.found_remotely: set[str] = set()
        self.keyless: set[str] = set()
        self.not_cached: set[str] = set()
        self._nodes = nodes
        self._runner = runner
        self._lookups = lookups
        self._key_cache = key_cache
        self._last_build = last_build
        self._build_events = build_events

    def report(self, ended: ReportAction) -> None:
        action = ended.action
        attempt, outcome = self._runner.ended(action.identifier)
        status = self._status_of(ended, attempt)
        if ended.shared_with or ended.ending not in (Ending.FAILED, Ending.EXECUTED):
            outcome = None
        executor = attempt.executor_name if outcome is not None and attempt is not None else ""
        # This compares with the key of the last build, so it comes before the new key is remembered.
        has_cause = executor or status is ActionStatus.NOT_CACHED
        cause, previous_key = self._cause_of(ended) if has_cause else (None, "")
        self._remember(ended, outcome)
        self._build_events.ended(
            ended,
            status,
            outcome,
            executor=executor,
            environment=action.identifier in self.keyless,
            cause=cause,
            previous_key=previous_key,
            output_files=self._files_of(ended, outcome),
        )

    def _files_of(self, ended: ReportAction, outcome: ExecutionOutcome | None) -> tuple[FileEntry, ...]:
        """The files of its result, or those that a failed test left."""
        if ended.ending in _WITH_RESULT:
            return self._nodes[ended.action.identifier].outputs or ()
        return outcome.outputs if outcome is not None and ended.action.is_test else ()

    def _status_of(self, ended: ReportAction, attempt: Attempt | None) -> ActionStatus:
        match ended.ending:
            case Ending.FAILED if (ended.shared_with or ended.action.identifier) in self.not_cached:
                return ActionStatus.NOT_CACHED
            case Ending.FAILED:
                return ActionStatus.FAILED
            case Ending.SKIPPED:
                return ActionStatus.SKIPPED
            case Ending.EXECUTED:
                is_elsewhere = attempt is not None and attempt.is_elsewhere
                return ActionStatus.EXECUTED_RAY if is_elsewhere else ActionStatus.EXECUTED_LOCAL
            case Ending.FOUND if ended.action.identifier in self.found_remotely:
                return ActionStatus.REMOTE_HIT
            case Ending.FOUND | Ending.SHARED:
                assert ended.key is not None
                is_known = self._last_build.had_key(ended.action.identifier, ended.key)
                return ActionStatus.UP_TO_DATE if is_known else ActionStatus.DISK_HIT

    def _remember(self, ended: ReportAction, outcome: ExecutionOutcome | None) -> None:
        action, key = ended.action, ended.key
        if ended.ending is Ending.EXECUTED and outcome is not None:
            self._last_build.remember_seconds(action.mnemonic, outcome.run_seconds, identifier=action.identifier)
            self._last_build.remember_peak(action.mnemonic, outcome.peak_bytes)
        signature = self._key_cache.new_signature(action.identifier)
        if signature and key is not None and ended.ending in _WITH_RESULT:
            self._last_build.remember(action.identifier, signature, key, self._nodes[action.identifier].outputs)

    def _cause_of(self, ended: ReportAction) -> tuple[Cause, str]:
        """Why an action ran, and the key that it had in the last build, where that is another key."""
        action, last = ended.action, self._last_build.key_of(ended.action.identifier)
        previous = "" if last is None or last == ended.key else last.hash
        if action.cache is CachePolicy.NONE:
            return Cause.NEVER_CACHED, previous
        if self._lookups.reruns(action):
            return Cause.ASKED, previous
        if self._nodes[action.identifier].is_made_again:
            return Cause.REMADE if action.cache is CachePolicy.REMADE else Cause.OUTPUTS_GONE, previous
        if last is None:
            return Cause.FIRST, ""
        return (Cause.CHANGED, previous) if previous else (Cause.NO_RESULT, "")
