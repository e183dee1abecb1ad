"""Compares the keys of this machine with those that another one reports."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mlcbuild.cli.explain.explanation import Explanation
from mlcbuild.cli.explain.reasons import Reasons, only_inputs_differ
from mlcbuild.engine.code_listing import CodeListing, code_listings
from mlcbuild.engine.key_difference import KeyContent, differences
from mlcbuild.engine.survey import Survey, SurveyedAction
from mlcbuild.errors import UsageError

_UNKNOWN = "what its key there was made of is neither in the report nor in the disk cache"


@dataclass(frozen=True, kw_only=True)
class Compared:
    """`differing` have a difference of their own, `following` differ in outputs of other actions alone."""

    equal: int
    differing: tuple[Explanation, ...]
    following: tuple[Explanation, ...]
    unknown_here: tuple[str, ...]
    unknown_there: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class OtherMachine:
    """The keys of a report by the identifiers of actions, and what they were made of, if the report says so."""

    path: Path
    keys: Mapping[str, str]
    contents: Mapping[str, KeyContent] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> OtherMachine:
        """Read a build report, or what `mlcbuild aquery --output json` prints. Raises UsageError."""
        try:
            document = json.loads(path.read_bytes())
        except OSError as error:
            raise UsageError(f"{path} cannot be read: {error.strerror or error}") from None
        except ValueError:
            document = None
        keys: dict[str, str] = {}
        contents: dict[str, KeyContent] = {}
        try:
            if isinstance(document["actions"], list):
                listings = code_listings(document.get("code", {}))
                for each in document["actions"]:
                    if each["key"]:
                        keys[each["action"]] = str(each["key"])
                        contents[each["action"]] = _content(each, listings)
            else:
                keys = {str(name): str(key) for name, key in document["keys"].items()}
        except (TypeError, KeyError, AttributeError):
            raise UsageError(
                f"{path} has no keys of actions",
                advice=(
                    "give what `mlcbuild build --build-report FILE` wrote on the other machine,",
                    "or the output of `mlcbuild aquery 'deps(…)' --output json`",
                ),
            ) from None
        return cls(path=path, keys=keys, contents=contents)

    def compare(self, survey: Survey, reasons: Reasons) -> Compared:
        """Compare the surveyed actions, in their order."""
        equal = 0
        differing: list[Explanation] = []
        following: list[Explanation] = []
        here: list[str] = []
        there: list[str] = []
        for identifier, surveyed in survey.actions.items():
            key = self.keys.get(identifier)
            if key is None:
                there.append(identifier)
            elif surveyed.key is None:
                here.append(identifier)
            elif surveyed.key.hash == key:
                equal += 1
            else:
                explanation = self._difference(surveyed, key, reasons)
                (following if only_inputs_differ(explanation) else differing).append(explanation)
        return Compared(
            equal=equal,
            differing=tuple(differing),
            following=tuple(following),
            unknown_here=tuple(here),
            unknown_there=tuple(there),
        )

    def _difference(self, surveyed: SurveyedAction, key: str, reasons: Reasons) -> Explanation:
        action = surveyed.action
        before = self.contents.get(action.identifier) or reasons.content_of(key)
        return Explanation(
            identifier=action.identifier,
            title=action.title,
            mnemonic=action.mnemonic,
            owner=action.owner,
            what="differs",
            why="" if before else _UNKNOWN,
            action=action,
            differences=differences(before, reasons.content_now(surveyed)) if before else (),
            makers=reasons.makers_of(action),
        )


def _content(action: Mapping[str, Any], listings: Mapping[str, CodeListing]) -> KeyContent:
    return KeyContent(
        components=action["key_components"],
        parameters=action.get("stage", {}).get("parameters", {}),
        code=listings.get(action["implementation"]),
    )
