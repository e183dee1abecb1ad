"""What a misspelt word may have meant, told in the same words in every room."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

_MOST_SHOWN = 8
_FEWEST_LETTERS = 3  # of a word that others may begin with


def closest(word: str, known: Iterable[str]) -> str:
    """The known word that is closest, in either case, or the first that begins like it; "" where none is close."""
    import difflib  # Costs milliseconds, and only a mistake needs it.

    folded = {candidate.casefold(): candidate for candidate in known}
    close = difflib.get_close_matches(word.casefold(), folded, n=1)
    if not close and len(word) >= _FEWEST_LETTERS:
        close = [candidate for candidate in folded if candidate.startswith(word.casefold())]
    return folded[close[0]] if close else ""


def did_you_mean(word: str, known: Sequence[str]) -> str:
    """The question that names the closest known word, in either case; "" where none is close."""
    meant = closest(word, known)
    return f'did you mean "{meant}"?' if meant else ""


def known_values(word: str, known: Iterable[str], *, intro: str = "known") -> str:
    """One line of advice: the first known words, and the one that `word` may have meant; "" where nothing is known."""
    candidates = list(dict.fromkeys(known))
    if not candidates:
        return ""
    shown = ", ".join(candidates[:_MOST_SHOWN]) + (", …" if len(candidates) > _MOST_SHOWN else "")
    guess = did_you_mean(word, candidates)
    return f"{intro}: {shown}" + (f"        {guess}" if guess else "")


def missing_module(module: str, entries: Iterable[str]) -> tuple[str, tuple[str, ...]]:
    """What is wrong, and advice, where the workspace has no module of that name. `entries` are the names in the folder
    in which it would be.
    """
    path = module.replace(".", "/")
    folder, _, name = path.rpartition("/")
    beside = sorted(entry for entry in entries if entry.endswith(".py"))
    advice = [known_values(f"{name}.py", beside, intro=f"{folder}/ has")] if folder and beside else []
    advice.append("a module is named by its path from the workspace's root, with dots: the name of a/b.py is a.b")
    return f"there is no module {module}: the workspace has no {path}.py", tuple(advice)
