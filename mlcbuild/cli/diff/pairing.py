"""Which action of one side corresponds to which of the other."""

from __future__ import annotations

from collections.abc import Iterable

from mlcbuild.cli.diff.side import Side, SideAction

# What a kernel's description may differ in and still be about the same kernel: its content; then its sizes as well.
_IGNORED = (("kernel",), ("kernel", "shape", "matrix"))


def paired(before: Side, now: Side) -> list[tuple[SideAction, SideAction]]:
    """Pair actions of one name; of one name apart from the target; then kernels of one description, and those that are
    alone of their mnemonic on both sides. What is in no pair is on one side alone.
    """
    left = {each.identifier: each for each in before.actions}
    partners: dict[str, SideAction] = {}

    def pair(each: SideAction, partner: SideAction | None) -> None:
        if partner is not None:
            partners[each.identifier] = left.pop(partner.identifier)

    def unpaired() -> Iterable[SideAction]:
        return (each for each in now.actions if each.identifier not in partners)

    for each in now.actions:
        pair(each, left.get(each.identifier))
    for each in unpaired():
        same = (other for other in left.values() if (other.mnemonic, other.name) == (each.mnemonic, each.name))
        pair(each, next(same, None))
    for ignored in _IGNORED:
        for each in unpaired():
            if each.kernel:
                alike = (other for other in left.values() if _are_alike(other, each, ignored))
                pair(each, next(alike, None))
    alone = [each for each in unpaired() if not each.kernel]
    for each in alone:
        others = [other for other in left.values() if other.mnemonic == each.mnemonic]
        rivals = [other for other in alone if other.mnemonic == each.mnemonic]
        if len(others) == len(rivals) == 1:
            pair(each, others[0])
    return [(partners[each.identifier], each) for each in now.actions if each.identifier in partners]


def _are_alike(one: SideAction, other: SideAction, ignored: tuple[str, ...]) -> bool:
    if one.mnemonic != other.mnemonic or not one.kernel:
        return False
    # Behind a kernel's name an identifier has what tells its actions of one mnemonic apart: an architecture.
    if one.identifier.partition(one.kernel)[2] != other.identifier.partition(other.kernel)[2]:
        return False
    first, second = (
        {name: value for name, value in each.details.items() if name not in ignored} for each in (one, other)
    )
    return first == second
