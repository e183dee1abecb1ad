"""Texts in which tokenizers differ: numbers, white space, scripts, marks, symbols, endings of English words."""

from __future__ import annotations

import random
import unicodedata
from collections.abc import Iterator

SAMPLES = (
    "The capital of France is Paris.",
    "def f(x, y=2):\n    return [x**y for x in range(10)]  # comment",
    "  leading and trailing  \n\n\ttabs\r\nand\u00a0more\u2003spaces ",
    "naïve café — “quotes” … ﷽ İstanbul ß ǅ",
    "日本語と한국어と中文、そして🙂👩‍👩‍👧‍👦🏳️‍🌈",
    "I'm you're we'll they'd it's DON'T HE'LL",
    "x=12345.678e-9;y=0xFF 1234567 ٣٤٥ ½ Ⅷ",
    "e\u0301 a\u0308 हिन्दी ไทย עִבְרִית",
    "HelloWorld helloWORLD HTTPServer iPhone macOS",
    "https://example.org/a/b?c=d&e=f#g  ///  \\\\ \n\n\n   \n  x",
    "",
    " ",
    "\n",
)


def random_texts(count: int, *, seed: int = 0) -> Iterator[str]:
    """Letters, digits, white space, other scripts and symbols, mixed; no characters that Unicode got lately."""
    source = random.Random(seed)
    words = (
        "don't",
        "WE'RE",
        "Hello",
        " 2024",
        "12345",
        "::",
        "  ",
        "\n\n",
        "\t",
        "naïve",
        "中文",
        "かな",
        "한국",
        " a",
        "É",
    )
    for _ in range(count):
        pieces = []
        for _ in range(source.randrange(1, 30)):
            kind = source.randrange(6)
            if kind == 0:
                pieces.append(source.choice(words))
            elif kind == 1:
                pieces.append(chr(source.randrange(0x20, 0x2500)))
            elif kind == 2:
                pieces.append(chr(source.randrange(0x4E00, 0x9FFF)))
            elif kind == 3:
                pieces.append(chr(source.randrange(0x1F300, 0x1F9FF)))
            elif kind == 4:
                pieces.append(source.choice(" 0123456789\n\t"))
            else:
                pieces.append(chr(source.randrange(32, 127)))
        yield "".join(piece for piece in pieces if all(unicodedata.category(letter) != "Cn" for letter in piece))
