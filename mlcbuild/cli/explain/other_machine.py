"""Compares the keys of this machine with those that another one reports."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mlcbuild.cli.explain.explanation import Explanation
from mlcbuild.cli.explain.reasons import Reasons, only_inputs_differ
from mlcbuild.cli.output.text import first_of
from mlcbuild.engine.code_listing import CodeListing, code_listings
from mlcbuild.engine.key_difference import KeyContent, differences
from mlcbuild.engine.survey import Survey, SurveyedAction
from mlcbuild.errors import UsageError

_MOST_NAMED = 3
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
    """The keys of a report by the identifiers of actions, and what they were made of, if the report says so.

    `labels` are those of the targets whose actions it has. `digest_function` is that of the keys, "" if it is not said.
    """

    path: Path
    keys: Mapping[str, str]
    contents: Mapping[str, KeyContent] = field(default_factory=dict)
    labels: frozenset[str] = frozenset()
    digest_function: str = ""

    @classmethod
    def read(cls, path: Path) -> OtherMachine:
        """Read a build report, or what `mlcbuild aquery --output json` prints. Raises UsageError."""
        try:
            document = json.loads(path.read_bytes())
        except OSError as error:
            raise UsageError(f"{path} cannot be read: {error.strerror or error}") from None
        except (ValueError, RecursionError):
            document = None
        keys: dict[str, str] = {}
        contents: dict[str, KeyContent] = {}
        try:
            names: list[str] = []
            function = str(document.get("digest_function", ""))
            if isinstance(document["actions"], list):
                listings = code_listings(document.get("code", {}))
                for each in document["actions"]:
                    names.append(str(each["action"]))
                    if each["key"]:
                        keys[each["action"]] = str(each["key"])
                        contents[each["action"]] = _content(each, listings)
            else:
                keys = {str(name): str(key) for name, key in document["keys"].items()}
                names += keys
        except (TypeError, KeyError, AttributeError):
            raise UsageError(
                f"{path} has no keys of actions",
                advice=(
                    "give what `mlcbuild build --build-report FILE` wrote on the other machine,",
                    "or the output of `mlcbuild aquery 'deps(…)' --output json`",
                ),
            ) from None
        labels = frozenset(name.partition(" ")[0] for name in names)
        return cls(path=path, keys=keys, contents=contents, labels=labels, digest_function=function)

    def lacking(self, labels: Collection[str]) -> tuple[str, ...]:
        """Those of the targets of which it has no action. Raises UsageError if it has none of any."""
        lacking = tuple(label for label in labels if label not in self.labels)
        if len(lacking) < len(labels) or not labels:
            return lacking
        known = ", ".join(first_of(sorted(self.labels), _MOST_NAMED))
        raise UsageError(
            f"{self.path} has no action of {', '.join(first_of(list(labels), _MOST_NAMED))}",
            advice=(
                f"it has those of {known}" if known else "its build ended before any action was known",
                "give a report of a build of these targets, in a copy of this workspace",
            ),
        )

    def check_function(self, function: str) -> None:
        """Raise UsageError if its keys are digests of another function than those of this machine."""
        if self.digest_function not in ("", function):
            raise UsageError(
                f"{self.path} has keys of {self.digest_function}, and this workspace those of {function}: all differ",
                advice=("give a report of this workspace with the same `digest`",),
            )

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
