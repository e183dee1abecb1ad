"""Licences as SPDX expressions (SPDX specification, annex "SPDX license expressions"), read with `packaging`.

A licence that SPDX does not list is `LicenseRef-NAME`. The identifiers of the Hugging Face hub are those of SPDX in
small letters where SPDX lists the licence (`apache-2.0`), and names of the hub's own elsewhere (`llama3.1`, `gemma`).
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence

from mlcbuild.suggestions import did_you_mean

# What models and texts are published under most often, for guesses.
_FREQUENT = (
    "Apache-2.0",
    "MIT",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "CC0-1.0",
    "CC-BY-4.0",
    "CC-BY-SA-4.0",
    "CC-BY-NC-4.0",
    "CC-BY-NC-SA-4.0",
    "GPL-3.0-only",
    "AGPL-3.0-only",
    "LGPL-3.0-only",
    "MPL-2.0",
    "OpenRAIL",
    "BigScience-RAIL-1.0",
)
_SAYS_NOTHING = frozenset({"other", "unknown"})
_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9.-]+")


class UnknownLicenseError(ValueError):
    """The text is no SPDX expression. `advice` says what to write."""

    def __init__(self, text: str) -> None:
        super().__init__(f'"{text}" is not an SPDX license expression')
        guess = did_you_mean(text, _FREQUENT)
        self.advice = (
            "write identifiers of SPDX, such as Apache-2.0, with AND, OR, WITH" + (f"        {guess}" if guess else ""),
            "a licence that SPDX does not list is LicenseRef-NAME",
        )


def license_expression(text: str) -> str:
    """The expression as SPDX writes it: `apache-2.0 or mit` → `Apache-2.0 OR MIT`. Raises UnknownLicenseError."""
    from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression

    try:
        return str(canonicalize_license_expression(text))
    except InvalidLicenseExpression:
        raise UnknownLicenseError(text) from None


def expression_of_stated(names: Sequence[str], own_name: str) -> str:
    """The expression for what a source says; "" if that is nothing.

    All of several licences hold. A name that SPDX does not have becomes a LicenseRef. `own_name` stands for "other".
    """
    parts = [part for name in names if (part := _stated(name))]
    if not parts and own_name:
        parts = [_reference(own_name)]
    if len(parts) < 2:
        return "".join(parts)
    return " AND ".join(f"({part})" if " " in part else part for part in parts)


def _stated(name: str) -> str:
    if name.casefold() in _SAYS_NOTHING:
        return ""
    for written in (name, "-".join(name.split())):  # "Apache 2.0", as many metadata have it
        with contextlib.suppress(UnknownLicenseError):
            return license_expression(written)
    return _reference(name)


def _reference(name: str) -> str:
    text = _NOT_IN_A_NAME.sub("-", name).strip("-.")
    return f"LicenseRef-{text}" if text else ""
