"""What programs read on standard output."""

from __future__ import annotations


def print_json(document: object) -> None:
    """Indented, in UTF-8 as it is."""
    import json

    print(json.dumps(document, indent=2, ensure_ascii=False))
