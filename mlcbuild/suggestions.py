"""What a misspelt word may have meant, told in the same words in every room."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

_MOST_SHOWN = 8


def did_you_mean(word: str, known: Sequence[str]) -> str:
    """The question that names the closest known word, in either case; "" where none is close."""
    import difflib  # Costs milliseconds, and only a mistake needs it.

    folded = {candidate.casefold(): candidate for candidate in known}
    close = difflib.get_close_matches(word.casefold(), folded, n=1)
    return f'did you mean "{folded[close[0]]}"?' if close else ""


def known_values(word: str, known: Iterable[str], *, intro: str = "known") -> str:
    """One line of advice: the first known words, and the one that `word` may have meant; "" where nothing is known."""
    candidates = list(dict.fromkeys(known))
    if not candidates:
        return ""
    shown = ", ".join(candidates[:_MOST_SHOWN]) + (", …" if len(candidates) > _MOST_SHOWN else "")
    guess = did_you_mean(word, candidates)
    return f"{intro}: {shown}" + (f"        {guess}" if guess else "")
