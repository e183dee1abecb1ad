"""`platform`: what a library runs on. Its kinds and their attributes are those of `rules/backends/`."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from mlcbuild.rules.backend import Backend, PlatformInfo, backends
from mlcbuild.rules.rule import Providers, Rule, RuleContext
from mlcbuild.workspace.schema import Attribute, AttributeKind, RuleSchema


def implement(context: RuleContext) -> Providers:
    kind = context.target.string("kind")
    backend = backends()[kind]
    own = {attribute.name for attribute in backend.attributes}
    for attribute in attributes_of(backends().values()):
        if attribute.name not in own and context.target.has(attribute.name):
            raise context.error(f"a platform of kind {kind} has no {attribute.name}", attribute=attribute.name)
    return (backend.platform(context),)


def attributes_of(kinds: Iterable[Backend]) -> tuple[Attribute, ...]:
    """The attributes of all kinds, each once. Where only some have one, its documentation tells which.

    Raises ValueError where two kinds mean different things by one name.
    """
    all_kinds = tuple(kinds)
    merged: dict[str, Attribute] = {}
    of: dict[str, list[str]] = {}
    for backend in all_kinds:
        for attribute in backend.attributes:
            known = merged.setdefault(attribute.name, attribute)
            if known != attribute:
                raise ValueError(
                    f"the backends {of[attribute.name][0]} and {backend.kind} have different attributes "
                    f"{attribute.name!r}: give one another name"
                )
            of.setdefault(attribute.name, []).append(backend.kind)
    return tuple(
        attribute
        if len(of[name]) == len(all_kinds)
        else dataclasses.replace(attribute, doc=f"{attribute.doc} For kind {' or '.join(of[name])} alone.")
        for name, attribute in merged.items()
    )


PLATFORM = Rule(
    schema=RuleSchema(
        name="platform",
        doc="What a library runs on. It says nothing of the machine that builds.",
        attributes=(
            Attribute(
                name="kind",
                kind=AttributeKind.CHOICE,
                allowed=tuple(backends()),
                mandatory=True,
                doc="The kind of processor that computes. "
                + " ".join(f"{kind}: {backend.doc}" for kind, backend in backends().items()),
            ),
            *attributes_of(backends().values()),
        ),
        provides=(PlatformInfo.name,),
    ),
    implementation=implement,
)
