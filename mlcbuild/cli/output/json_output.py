"""Prints JSON for programs on standard output."""

from __future__ import annotations


def print_json(document: object) -> None:
    """Print `document` as indented JSON in UTF-8."""
    import json

    print(json.dumps(document, indent=2, ensure_ascii=False))
