"""Which actions the words after `mlcbuild show` mean: TARGET, MNEMONIC and words of a kernel's name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from mlcbuild.errors import UsageError
from mlcbuild.suggestions import known_values

_MOST_NAMED = 10
Named = TypeVar("Named")


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """`mnemonic` "" stands for all actions of the target, `words` () for all of that mnemonic.

    An action has these words if its name for people contains each, or if the name of its content begins with it.
    """

    target: str
    mnemonic: str = ""
    words: tuple[str, ...] = ()

    @classmethod
    def read(cls, arguments: Sequence[str]) -> Wanted:
        """Read the arguments, which may also be one name of an action as it is printed: `//models:x Export`."""
        words = " ".join(arguments).split()
        if not words:
            raise UsageError("the name of the target is empty")
        return cls(
            target=words[0],
            mnemonic=words[1] if len(words) > 1 else "",
            # The name of a content stands in parentheses: `add n×576 (41c2f699)`.
            words=tuple(word.strip("()") for word in words[2:] if word.strip("()")),
        )

    def has_words(self, title: str, identifier: str) -> bool:
        """Whether an action has all words. Its identifier ends in the name of its content."""
        content = identifier.split(" ")[2:]
        return all(
            word.casefold() in title.casefold() or any(part.startswith(word) for part in content) for word in self.words
        )


def chosen_of(
    wanted: Wanted,
    label: str,
    actions: Iterable[Named],
    *,
    mnemonic: Callable[[Named], str],
    names: Callable[[Named], tuple[str, str]],
) -> list[Named]:
    """The target's actions that are wanted; `names` gives the title and the identifier of one.

    Raises UsageError where there is none.
    """
    known = list(actions)
    if not wanted.mnemonic:
        return known
    mnemonics = {mnemonic(each).casefold(): mnemonic(each) for each in known}
    name = mnemonics.get(wanted.mnemonic.casefold())
    if name is None:
        if not known:
            raise UsageError(f"{label} has no actions")
        raise UsageError(
            f'{label} has no action "{wanted.mnemonic}"', advice=(known_values(wanted.mnemonic, mnemonics.values()),)
        )
    of_mnemonic = [each for each in known if mnemonic(each) == name]
    found = [each for each in of_mnemonic if wanted.has_words(*names(each))]
    if not found:
        shown = [names(each)[0].removeprefix(f"{label} ") for each in of_mnemonic[:_MOST_NAMED]]
        raise UsageError(
            f'no {name} of {label} is named "{" ".join(wanted.words)}"',
            advice=(*shown, *(["…"] if len(of_mnemonic) > _MOST_NAMED else [])),
        )
    exact = [each for each in found if names(each)[1].split(" ")[2:] == list(wanted.words)]
    return exact or found
