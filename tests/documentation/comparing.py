"""What a page shows against what was printed.

- `…` alone in a line stands for any lines, also none; `…` within a line for any characters.
- Durations (`12.4 s`), sizes (`18 MB`) and digests (hexadecimal, 8 digits or more) may differ.
- Runs of spaces count as one, because figures of other lengths move columns.
- What a build prints only because it takes long, or because there is no terminal, is not compared: summary lines
  (`[83/254] 20.0 s · …`) and the closing table of the targets. The critical path is compared where the page shows it.
"""

from __future__ import annotations

import re

_VARYING = (
    (re.compile(r"\b(\d+ h \d\d min|\d+ min \d\d s|\d+ min|[\d.]+ m?s)(?!\w)"), "<time>"),
    (re.compile(r"\b[\d.]+ ?([kMG]?B|[KMG]iB)(?!\w)"), "<size>"),
    (re.compile(r"\b(?=[0-9a-f]*\d)[0-9a-f]{8,}\b"), "<digest>"),
    (re.compile(r"<digest>…"), "<digest>"),
    (re.compile(r" +"), " "),
)
_PROGRESS = re.compile(r"\[\d+/\d+\] [^·]+ · (\d+ running|nothing is running|waiting)|rendering: \d+ % · ")
_TABLE = re.compile(r"^TARGET +OUTCOME .*\n(?:.*\n)*?(?=\d[\d,]* actions?: )", re.MULTILINE)
_CRITICAL_PATH = "critical path "


def difference(shown: str, printed: str) -> str:
    """ "" where they agree, else a text that shows both."""
    wanted, found = _lines(shown), _lines(printed)
    if not any(line.startswith(_CRITICAL_PATH) for line in wanted):
        found = [line for line in found if not line.startswith(_CRITICAL_PATH)]
    if _agree(wanted, found):
        return ""
    return f"the page shows:\n{_indented(shown)}\nit printed:\n{_indented(printed)}"


def _lines(text: str) -> list[str]:
    kept = [line for line in _TABLE.sub("", text).splitlines() if not _PROGRESS.match(line)]
    while kept and not kept[-1].strip():
        kept.pop()
    return [_constant(line) for line in kept]


def _constant(line: str) -> str:
    for pattern, replacement in _VARYING:
        line = pattern.sub(replacement, line)
    return line.rstrip()


def _agree(wanted: list[str], found: list[str]) -> bool:
    """Whether the lines agree; the usual algorithm for a pattern with `*`, over lines."""
    place, star, resumed = 0, -1, 0
    at = 0
    while at < len(found):
        if place < len(wanted) and wanted[place].strip() == "…":
            star, resumed = place, at
            place += 1
        elif place < len(wanted) and _agrees(wanted[place], found[at]):
            place, at = place + 1, at + 1
        elif star >= 0:
            resumed += 1
            place, at = star + 1, resumed
        else:
            return False
    return all(line.strip() == "…" for line in wanted[place:])


def _agrees(wanted: str, found: str) -> bool:
    return wanted == found or re.fullmatch(".*".join(map(re.escape, wanted.split("…"))), found) is not None


def _indented(text: str) -> str:
    return "".join(f"    {line}\n" for line in text.splitlines()) or "    (nothing)\n"
