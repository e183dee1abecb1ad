"""What the code of a stage consists of, by module and function, so that a change of its digest can be explained.

A listing is stored once for each implementation, beside the results that were made with it. No key contains it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_VERSION = 1
WHOLE_MODULE = "*"  # the name under which a module's own digest stands among those of its definitions


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeListing:
    """The parts of the implementation that has `digest`.

    `modules` has the digest of each definition of each module (`normal_form.ModuleForm.definitions`), and that of the
    module as WHOLE_MODULE. `parts` are all
    others, by kind and name: `distribution numpy`, `data models/x.json`, `python `, each with its digest or version.
    """

    digest: str
    modules: Mapping[str, Mapping[str, str]]
    parts: Mapping[str, str]

    def encode(self) -> bytes:
        document = {"version": _VERSION, "digest": self.digest, "modules": self.modules, "parts": self.parts}
        return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, data: bytes) -> CodeListing:
        """Raises ValueError for bytes that are no listing of this version."""
        document = json.loads(data)
        if not isinstance(document, dict) or document.get("version") != _VERSION:
            raise ValueError("no listing of code of this version")
        modules, parts = document.get("modules"), document.get("parts")
        if not isinstance(modules, dict) or not isinstance(parts, dict):
            raise ValueError("a damaged listing of code")
        return cls(digest=str(document.get("digest")), modules=modules, parts=parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeChange:
    """A difference between two listings. `where` is a module, or the kind and name of another part.

    `name` is the definition in the module; "" for statements outside of definitions, and for a part or module as a
    whole. `kind` is "changed", "new" or "gone".
    """

    where: str
    name: str
    kind: str
    is_module: bool = True

    def __str__(self) -> str:
        if not self.is_module:
            return f"{self.where.strip()} {self.kind}"
        if self.kind != "changed" and not self.name:
            return f"module {self.where} {self.kind}"
        if self.name == WHOLE_MODULE:
            return f"{self.where}: the order of its definitions changed"
        return f"{self.where}: {self.name or 'what is outside of functions'} {self.kind}"


def code_changes(before: CodeListing, now: CodeListing) -> tuple[CodeChange, ...]:
    """What differs, modules first, sorted by name."""
    return (*_changed_modules(before, now), *_changed_parts(before, now))


def _changed_modules(before: CodeListing, now: CodeListing) -> Iterator[CodeChange]:
    for module in sorted({*before.modules, *now.modules}):
        old, new = before.modules.get(module), now.modules.get(module)
        if old is None or new is None:
            yield CodeChange(where=module, name="", kind="new" if old is None else "gone")
            continue
        if old == new:
            continue
        names = [name for name in sorted({*old, *new} - {WHOLE_MODULE}) if old.get(name) != new.get(name)]
        for name in names or [WHOLE_MODULE]:
            kind = "new" if name not in old else "gone" if name not in new else "changed"
            yield CodeChange(where=module, name=name, kind=kind)


def _changed_parts(before: CodeListing, now: CodeListing) -> Iterator[CodeChange]:
    for part in sorted({*before.parts, *now.parts}):
        if before.parts.get(part) != now.parts.get(part):
            kind = "new" if part not in before.parts else "gone" if part not in now.parts else "changed"
            yield CodeChange(where=part, name="", kind=kind, is_module=False)


def code_document(listings: Iterable[CodeListing]) -> dict[str, Any]:
    """Listings of code as JSON, with each module once: equal code of a module has one digest in all listings."""
    modules: dict[str, Mapping[str, str]] = {}
    implementations = {}
    for listing in listings:
        modules.update(listing.modules)
        implementations[listing.digest] = {"modules": list(listing.modules), "parts": dict(listing.parts)}
    return {"modules": modules, "implementations": implementations}


def code_listings(document: Mapping[str, Any]) -> dict[str, CodeListing]:
    """The listings of `code_document`, by the digest of the implementation. Raises KeyError, TypeError."""
    modules = document.get("modules", {})
    return {
        digest: CodeListing(
            digest=digest, modules={name: modules[name] for name in each["modules"]}, parts=each["parts"]
        )
        for digest, each in document.get("implementations", {}).items()
    }
