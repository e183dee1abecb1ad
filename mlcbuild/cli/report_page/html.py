"""Puts the page together: the files of `assets/` and the data, in one HTML file that needs nothing else.

The file says in its Content-Security-Policy that it runs exactly the scripts and the style that it was made with, and
opens no connection.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

from mlcbuild.cli.output.json_output import json_text

# In this order: each uses only what those before it declare.
SCRIPTS = (
    "values.js",
    "elements.js",
    "model.js",
    "table.js",
    "timeline.js",
    "details.js",
    "overview.js",
    "actions.js",
    "targets.js",
    "comparison.js",
    "page.js",
)
STYLE = "style.css"
_PLACE = re.compile(r"\{\{(\w+)\}\}")
# Within JSON, these characters are in strings alone. So nothing in the data can end its element or begin another one.
_ESCAPED = "<>&\u2028\u2029"


def page_html(build: Mapping[str, Any], details: Mapping[str, Any]) -> str:
    """The whole file."""
    scripts, style = [asset(name) for name in SCRIPTS], asset(STYLE)
    policy = (
        f"default-src 'none'; script-src {' '.join(map(_source, scripts))}; style-src {_source(style)}; "
        "base-uri 'none'; form-action 'none'"
    )
    places = {
        "policy": policy,
        "style": f"<style>{style}</style>",
        "data": _data("build", build) + "\n" + _data("details", details),
        "scripts": "\n".join(f"<script>{script}</script>" for script in scripts),
    }
    return _PLACE.sub(lambda place: places[place[1]], asset("page.html"))


@cache
def asset(name: str) -> str:
    return resources.files(__package__).joinpath("assets", name).read_text(encoding="utf-8")


def _source(content: str) -> str:
    digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
    return f"'sha256-{digest}'"


def _data(identifier: str, document: Mapping[str, Any]) -> str:
    text = json_text(document)
    for character in _ESCAPED:
        text = text.replace(character, f"\\u{ord(character):04x}")
    return f'<script type="application/json" id="{identifier}">{text}</script>'
