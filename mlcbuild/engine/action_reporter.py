"""The end of each action: how it came to be done, why it ran, and what of it the next build is to know."""

from __future__ import annotations

from collections.abc import Mapping

from mlcbuild.engine.action import CachePolicy
from mlcbuild.engine.action_cache_lookup import ActionCacheLookup
from mlcbuild.engine.action_runner import ActionRunner, Attempt
from mlcbuild.engine.build_event_publisher import BuildEventPublisher
from mlcbuild.engine.build_events import ActionStatus, Cause
from mlcbuild.engine.executor import ExecutionOutcome
from mlcbuild.engine.instructions import Ending, ReportAction
from mlcbuild.engine.key_cache import KeyCache
from mlcbuild.engine.last_build import LastBuild
from mlcbuild.engine.nodes import ActionNode

_WITH_RESULT = (Ending.EXECUTED, Ending.FOUND, Ending.SHARED)


class ActionReporter:
    """Used in the thread of the build alone. `nodes` are the scheduler's, by identifier.

    Actions are added to `found_remotely` when a remote has had their results, and to `keyless` when they have no key
    because of this machine, both before they are told.
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
        self._nodes = nodes
        self._runner = runner
        self._lookups = lookups
        self._key_cache = key_cache
        self._last_build = last_build
        self._build_events = build_events

    def tell(self, told: ReportAction) -> None:
        action = told.action
        run, outcome = self._runner.ended(action.identifier)
        status = self._status_of(told, run)
        if told.ending not in (Ending.FAILED, Ending.EXECUTED):
            outcome = None
        executor = run.executor_name if outcome is not None and run is not None else ""
        # Before its own key is remembered.
        cause, previous_key = self._cause_of(told) if executor else (None, "")
        self._remember(told, outcome)
        self._build_events.ended(
            told,
            status,
            outcome,
            executor=executor,
            environment=action.identifier in self.keyless,
            cause=cause,
            previous_key=previous_key,
        )

    def _status_of(self, told: ReportAction, run: Attempt | None) -> ActionStatus:
        match told.ending:
            case Ending.FAILED:
                return ActionStatus.FAILED
            case Ending.SKIPPED:
                return ActionStatus.SKIPPED
            case Ending.EXECUTED:
                is_elsewhere = run is not None and run.is_elsewhere
                return ActionStatus.EXECUTED_RAY if is_elsewhere else ActionStatus.EXECUTED_LOCAL
            case Ending.FOUND if told.action.identifier in self.found_remotely:
                return ActionStatus.REMOTE_HIT
            case Ending.FOUND | Ending.SHARED:
                assert told.key is not None
                is_known = self._last_build.had_key(told.action.identifier, told.key)
                return ActionStatus.UP_TO_DATE if is_known else ActionStatus.DISK_HIT

    def _remember(self, told: ReportAction, outcome: ExecutionOutcome | None) -> None:
        action, key = told.action, told.key
        if told.ending is Ending.EXECUTED and outcome is not None:
            self._last_build.remember_seconds(action.mnemonic, outcome.run_seconds, identifier=action.identifier)
            self._last_build.remember_peak(action.mnemonic, outcome.peak_bytes)
        signature = self._key_cache.new_signature(action.identifier)
        if signature and key is not None and told.ending in _WITH_RESULT:
            self._last_build.remember(action.identifier, signature, key, self._nodes[action.identifier].outputs)

    def _cause_of(self, told: ReportAction) -> tuple[Cause, str]:
        """Why an action ran, and the key it had here before where that was another."""
        action, last = told.action, self._last_build.key_of(told.action.identifier)
        previous = "" if last is None or last == told.key else last.hash
        if action.cache is CachePolicy.NONE:
            return Cause.NEVER_CACHED, previous
        if self._lookups.reruns(action):
            return Cause.ASKED, previous
        if self._nodes[action.identifier].rewinds:
            return Cause.OUTPUTS_GONE, previous
        if last is None:
            return Cause.FIRST, ""
        return (Cause.CHANGED, previous) if previous else (Cause.NO_RESULT, "")
