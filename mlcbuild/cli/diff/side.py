"""One side of a comparison: the actions of a state of the workspace, or of a recorded build."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from mlcbuild.cache.digest import Digest
from mlcbuild.cli.console.action_names import recorded_title
from mlcbuild.cli.inspection.aquery import announces_unknown
from mlcbuild.cli.log.records import BuildRecord
from mlcbuild.cli.log.stored_results import StoredResults
from mlcbuild.engine.action import Action
from mlcbuild.engine.action_results import outputs_of
from mlcbuild.engine.code_listing import CodeListing
from mlcbuild.engine.executor import FileEntry
from mlcbuild.engine.key_difference import KeyContent
from mlcbuild.engine.survey import Survey, SurveyedAction
from mlcbuild.errors import MlcbuildError


@dataclass(frozen=True, kw_only=True)
class SideAction:
    """An action on one side. `key` is "" if it is not known. `content` makes what the key consists of, None if the disk
    cache has forgotten it; without a key it has no inputs. `outputs` makes the files of its result, None if no cache
    that was asked has one, and `fetch` brings blobs of them from a remote cache. `details` say what the action does,
    for kernels.
    """

    identifier: str
    title: str
    mnemonic: str
    owner: str
    key: str
    details: Mapping[str, Any]
    content: Callable[[], KeyContent | None]
    outputs: Callable[[], tuple[FileEntry, ...] | None]
    fetch: Callable[[Iterable[Digest]], object] = lambda _: None
    action: Action | None = None
    waits_for: str = ""

    @property
    def name(self) -> str:
        """The identifier without the target."""
        return self.identifier.removeprefix(f"{self.owner} ")

    @property
    def is_announced(self) -> bool:
        """Whether a manifest announced it: its name has the thing that it is for behind the mnemonic."""
        return " " in self.name

    @property
    def kernel(self) -> str:
        """The name of the kernel's content; "" for an action of no kernel."""
        return str(self.details.get("kernel", ""))


@dataclass(frozen=True, kw_only=True)
class Side:
    """`title` says for people what it is. `actions` are in the order of the pipeline; of a record, as they ended.
    `has_unknown` says that an action without a result would announce more of them.
    """

    title: str
    actions: tuple[SideAction, ...]
    has_unknown: bool = False


def surveyed_side(title: str, survey: Survey, actions: list[SurveyedAction]) -> Side:
    """The side of a surveyed state of the workspace."""
    listings: dict[bytes, CodeListing] = {}

    def content(surveyed: SurveyedAction) -> KeyContent:
        code = survey.keys.listing_of(surveyed.action)
        if code and code not in listings:
            listings[code] = CodeListing.decode(code)
        return KeyContent.of_source(survey.keys.source_of(surveyed.action, surveyed.inputs), listings.get(code))

    return Side(
        title=title,
        has_unknown=any(announces_unknown(each) for each in actions),
        actions=tuple(
            SideAction(
                identifier=each.action.identifier,
                title=each.action.title,
                mnemonic=each.action.mnemonic,
                owner=each.action.owner,
                key=each.key.hash if each.key else "",
                details=dict(each.action.description.details) if each.action.description else {},
                content=partial(content, each),
                outputs=partial(survey.outputs_of, each),
                fetch=survey.bring,
                action=each.action,
                waits_for=each.waits_for,
            )
            for each in actions
        ),
    )


def _stored_outputs(stored: StoredResults, key: str) -> tuple[FileEntry, ...] | None:
    found = stored.result(key) if key else None
    if found is None:
        return None
    result, store = found
    try:
        return outputs_of(result, store)
    except (MlcbuildError, ValueError):
        return None


def recorded_side(title: str, build: BuildRecord, stored: StoredResults, wants: Callable[[str], bool]) -> Side:
    """The side of a recorded build, with the actions of the targets that `wants` accepts by their labels."""

    def content(key: str) -> KeyContent | None:
        found = stored.key(key) if key else None
        return KeyContent.of_stored(found, stored.listing(found.code)) if found else None

    # An action whose result was lost has run again: its last end counts.
    actions = {each["identifier"]: each for each in build.actions() if wants(each["owner"])}
    return Side(
        title=title,
        actions=tuple(
            SideAction(
                identifier=identifier,
                title=recorded_title(each),
                mnemonic=each["mnemonic"],
                owner=each["owner"],
                key=each.get("key", ""),
                details=each.get("details", {}),
                content=partial(content, each.get("key", "")),
                outputs=partial(_stored_outputs, stored, each.get("key", "")),
            )
            for identifier, each in actions.items()
        ),
    )
