"""How deep a TOML text nests. It is found before the text is parsed: a deep one overflows the stack of the parser.

Lists, tables and the parts of dotted keys count alike. A text that is no TOML may be measured wrongly, but never as
less deep than the parser gets.
"""

from __future__ import annotations

import itertools
import re

DEEPEST = 100

# What cannot nest, and what nests. A string that is not closed ends with its line or its text, and so does the parser.
_TOKEN = re.compile(
    r'''"""(?:\\.|[^\\])*?(?:"""|\Z)|\'\'\'.*?(?:\'\'\'|\Z)|"(?:\\.|[^"\\\n])*"?|'[^'\n]*'?|#[^\n]*|[\[\]{}.,=\n]''',
    re.DOTALL,
)
_NESTING = re.compile(r"[\[{.]")
# A line that ends at the depth at which it begins, with `_IN_PLAIN_LINES` in it at most, wherever in a text it stands:
# a header, or a key with a string, a plain word or a list of strings. No three quotes follow each other in it.
_STRING = r'"[^"\\\n]*+"'
_PLAIN_LINE = re.compile(
    rf"^(?:\[{{1,2}}[\w-]+\]{{1,2}}|[\w-]++ *+= *+(?:{_STRING}|[\w-]++|\[(?:{_STRING}(?:, *+{_STRING})*+)?\]))$",
    re.ASCII | re.MULTILINE,
)
_IN_PLAIN_LINES = 2


def too_deep_at(text: str) -> int | None:
    """The offset of what nests deeper than `DEEPEST`; None if nothing does."""
    if len(_NESTING.findall(_PLAIN_LINE.sub("", text))) + _IN_PLAIN_LINES <= DEEPEST:
        return None
    opened: list[tuple[int, bool]] = []  # of each open bracket: the depth before it, and whether it holds values
    depth = 0  # of the key or value at hand: of what holds it, with the dots of its key
    is_value = False  # dots of numbers do not nest
    for number, token in enumerate(_TOKEN.findall(text)):  # Texts alone: a match takes twice as long.
        match token:
            case "\n" | ",":
                before, is_value = opened[-1] if opened else (-1, False)
                depth = before + 1
            case "=":
                is_value = True
            case "[" | "{":
                is_value = is_value and token == "["  # otherwise keys follow: of a header, or of a table
                opened.append((depth, is_value))
                depth += 1
            case "]" | "}":
                depth, is_value = opened.pop()[0] if opened else 0, True
            case ".":
                depth += not is_value
            case _:
                continue
        if depth > DEEPEST:
            return next(itertools.islice(_TOKEN.finditer(text), number, None)).start()
    return None
