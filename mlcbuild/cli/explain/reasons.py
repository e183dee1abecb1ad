"""Finds why the actions of targets would run, from a survey, or ran, from the record of a build."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from mlcbuild.cli.console.action_names import recorded_title
from mlcbuild.cli.explain.explanation import Explanation, KernelChange
from mlcbuild.cli.log.records import BuildRecord
from mlcbuild.cli.log.stored_results import StoredResults
from mlcbuild.engine.action import Action, SourceArtifact
from mlcbuild.engine.action_results import manifest_of
from mlcbuild.engine.build_events import ActionStatus, Cause
from mlcbuild.engine.code_listing import CodeListing
from mlcbuild.engine.key_difference import Difference, KeyContent, differences
from mlcbuild.engine.survey import ActionState, Survey, SurveyedAction
from mlcbuild.errors import MlcbuildError

FORGOTTEN = "its key changed; what the former key was made of is no longer in the disk cache"
_FIRST = "the first build here"
_FAILED = "it failed when it was last built here"
_NO_RESULT = "nothing changed since it was built here, but the disk cache has the result no longer"
_NEVER_KEPT = "its result is never kept"
_MADE_NEW = "no former build here had it"
_CAUSES = {
    Cause.FIRST.value: _FIRST,
    Cause.NO_RESULT.value: "nothing changed since it was built here, but no cache had the result any more",
    Cause.OUTPUTS_GONE.value: "nothing changed, but the files of its result had gone from all caches",
    Cause.REMADE.value: "nothing changed: no cache keeps the files of its result, and they were not here",
    Cause.ASKED.value: "it was asked for",
    Cause.NEVER_CACHED.value: _NEVER_KEPT,
}
_WHATS = {
    ActionState.WOULD_RUN: "would run",
    ActionState.CACHED: "is cached",
    ActionState.WAITS: "waits",
    ActionState.NO_KEY: "has no key",
}


class Reasons:
    """Compares keys. What keys were made of comes from the disk cache. `failed` are the actions without a result that
    failed in the last build that had to do with them.
    """

    def __init__(self, survey: Survey, stored: StoredResults, *, failed: Collection[str] = ()) -> None:
        self._survey = survey
        self._stored = stored
        self._failed = failed
        self._listings: dict[bytes, CodeListing] = {}

    def now(self) -> Iterator[Explanation]:
        """One for each surveyed action that is not up to date, in the order of the survey."""
        for surveyed in self._survey.actions.values():
            if surveyed.state is not ActionState.UP_TO_DATE:
                yield self._of_surveyed(surveyed)

    def of_record(self, record: BuildRecord, owners: frozenset[str]) -> Iterator[Explanation]:
        """One for each action of these targets that ran in a recorded build, in the order of the survey."""
        ran = {
            each["identifier"]: each for each in record.actions() if each.get("executor") and each["owner"] in owners
        }
        known = [name for name in self._survey.actions if name in ran]
        for identifier in dict.fromkeys([*known, *sorted(ran)]):
            yield self._of_recorded(ran[identifier])

    def content_now(self, surveyed: SurveyedAction) -> KeyContent:
        """What the key of an action is made of now."""
        code = self._survey.keys.listing_of(surveyed.action)
        if code and code not in self._listings:
            self._listings[code] = CodeListing.decode(code)
        return KeyContent.of_source(
            self._survey.keys.source_of(surveyed.action, surveyed.inputs), self._listings.get(code)
        )

    def content_of(self, key: str) -> KeyContent | None:
        """What a stored key was made of; None if the disk cache does not have it."""
        stored = self._stored.key(key) if key else None
        return KeyContent.of_stored(stored, self._stored.listing(stored.code)) if stored else None

    def makers_of(self, action: Action) -> Mapping[str, str]:
        """The titles of the actions that make its inputs, by their identifiers, as far as they are known."""
        made = (item.artifact.action for item in action.inputs if not isinstance(item.artifact, SourceArtifact))
        return {name: self._survey.actions[name].action.title for name in made if name in self._survey.actions}

    def _of_surveyed(self, surveyed: SurveyedAction) -> Explanation:
        action, previous = surveyed.action, surveyed.previous_key
        blocker = self._survey.actions.get(surveyed.waits_for)
        why, changed = "", tuple[Difference, ...]()
        kernels: tuple[KernelChange, ...] = ()
        if surveyed.state is ActionState.NO_KEY:
            why = surveyed.message
        elif previous is None:
            why = _FAILED if action.identifier in self._failed else _FIRST
        elif surveyed.key == previous:
            why = _NEVER_KEPT if surveyed.never_kept else _NO_RESULT
        else:
            before = self.content_of(previous.hash)
            if before is not None:
                with_inputs = surveyed.key is not None
                changed = differences(before, self.content_now(surveyed), with_inputs=with_inputs)
            elif surveyed.key is not None:
                why = FORGOTTEN
            if surveyed.key is not None and action.discoverer is not None:
                kernels = self._kernel_changes(action, previous.hash, surveyed.key.hash)
        return Explanation(
            identifier=action.identifier,
            title=action.title,
            mnemonic=action.mnemonic,
            owner=action.owner,
            what=_WHATS[surveyed.state],
            why=why,
            waits_for=blocker.action.title if blocker else surveyed.waits_for,
            action=action,
            differences=changed,
            kernels=kernels,
            makers=self.makers_of(action),
        )

    def _of_recorded(self, recorded: Mapping[str, Any]) -> Explanation:
        identifier, cause = recorded["identifier"], recorded.get("cause", "")
        key, previous = recorded.get("key", ""), recorded.get("previous_key", "")
        surveyed = self._survey.actions.get(identifier)
        why, changed = _CAUSES.get(cause, cause), tuple[Difference, ...]()
        kernels: tuple[KernelChange, ...] = ()
        if cause == Cause.CHANGED.value:
            before, after = self.content_of(previous), self.content_of(key)
            why = ""
            if before is None or after is None:
                why = FORGOTTEN
            else:
                changed = differences(before, after)
            if surveyed is not None and surveyed.action.discoverer is not None:
                kernels = self._kernel_changes(surveyed.action, previous, key)
        elif cause == Cause.FIRST.value and surveyed is not None and recorded.get("details"):
            why = _MADE_NEW if self._survey.last_build.identifiers() else _FIRST
        if cause == Cause.FIRST.value and identifier in self._failed:
            why = _FAILED
        return Explanation(
            identifier=identifier,
            title=recorded_title(recorded),
            mnemonic=recorded["mnemonic"],
            owner=recorded["owner"],
            what="failed" if recorded["status"] == "failed" else "ran",
            why=why,
            action=surveyed.action if surveyed else None,
            differences=changed,
            kernels=kernels,
            makers=self.makers_of(surveyed.action) if surveyed else {},
        )

    # What a manifest announces.

    def _kernel_changes(self, action: Action, before: str, now: str) -> tuple[KernelChange, ...]:
        """The kernels, or other discovered things, that differ between two results of a discovering action."""
        old, new = self._announced(action, before), self._announced(action, now)
        if old is None or new is None:
            return ()
        gone = {name: each for name, each in old.items() if name not in new}
        made = {name: each for name, each in new.items() if name not in old}
        former: dict[str, Action] = {}
        # A changed kernel has another name, which is its content. What else is said of it is the same, or all but its
        # sizes are.
        for ignored in (("kernel",), ("kernel", "shape", "matrix")):
            for name, after in made.items():
                same = next((old for old, each in gone.items() if _are_alike(each, after, ignored)), None)
                if name not in former and same is not None:
                    former[name] = gone.pop(same)
        return (
            *(_kernel_change(former.get(name), after) for name, after in made.items()),
            *(_kernel_change(each, None) for each in gone.values()),
        )

    def _announced(self, action: Action, key: str) -> dict[str, Action] | None:
        """The first discovered action of each kernel, by the kernel's name, or each action by its identifier."""
        found = self._stored.result(key)
        if found is None or action.discoverer is None:
            return None
        with suppress(MlcbuildError, ValueError):
            result, store = found
            manifest = manifest_of(action, result, store)
            discovery = action.discoverer(discovering=action.identifier, manifest=manifest)
            announced: dict[str, Action] = {}
            for each in discovery.actions:
                announced.setdefault(str(_details(each).get("kernel", each.identifier)), each)
            return announced
        return None


def failed_in(builds: Iterable[BuildRecord], owners: frozenset[str]) -> frozenset[str]:
    """The actions of these targets that failed in the newest of these builds that had to do with them."""
    ended: dict[str, str] = {}
    for record in builds:
        if any(target.outcome == "failed" for label, target in record.outcomes.items() if label in owners):
            for each in record.actions():
                ended.setdefault(each["identifier"], each["status"])
    return frozenset(name for name, status in ended.items() if status == ActionStatus.FAILED.value)


def _details(action: Action) -> dict[str, Any]:
    return dict(action.description.details) if action.description else {}


def _are_alike(one: Action, other: Action, ignored: tuple[str, ...]) -> bool:
    """Whether their descriptions say the same, apart from what is ignored. Without a description no two are alike."""
    first, second = (
        {name: value for name, value in _details(each).items() if name not in ignored} for each in (one, other)
    )
    return bool(first) and first == second


def _kernel_change(before: Action | None, now: Action | None) -> KernelChange:
    either = now or before
    assert either is not None
    functions = _details(either).get("functions", ())
    return KernelChange(
        before=_kernel_title(before), now=_kernel_title(now), functions=tuple(str(each) for each in functions)
    )


def _kernel_title(action: Action | None) -> str:
    if action is None:
        return ""
    return action.description.text if action.description else action.identifier


def only_inputs_differ(explanation: Explanation) -> bool:
    """Whether all that differs are outputs of other actions."""
    return bool(explanation.differences) and all(
        each.kind == "input" and not explanation.source_path(each.name) for each in explanation.differences
    )
