"""What comparisons of families found: `family_results.json`, which tests write and docs/families.md is made of.

With `MLCBUILD_RECORD_RESULTS=1` a test that compares a row of the page writes down what it found: the largest error,
the day, and the release that it compared with. A result is of one case: if the case is another one by now, there is
none, and the page says that the row was not run.
"""

from __future__ import annotations

import datetime
import fcntl
import hashlib
import importlib.metadata
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from tests.compiler.family_case import FamilyCase
from tests.compiler.family_cases import CASES
from tests.compiler.gguf_case import GGUFCase
from tests.compiler.gguf_cases import CASES as GGUF_CASES
from tests.compiler.windowed_cases import WINDOWED

PATH = Path(__file__).parent / "family_results.json"
SUFFIX = ".gguf"  # of the names of files' rows
_VARIABLE = "MLCBUILD_RECORD_RESULTS"
_NOT_TOLD = ("checkpoint", "in_ci", "bound", "reason")
"""What is a function, or says what is done with a result."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """`error` is relative to the largest logit; `against` is a distribution with its release, `day` an ISO date, and
    `case` tells the case."""

    error: float
    against: str
    day: str
    case: str


def record(name: str, case: FamilyCase | GGUFCase, error: float) -> None:
    """Write down what a row's comparison found, if results are recorded."""
    if os.environ.get(_VARIABLE) != "1":
        return
    distribution = "xllamacpp" if isinstance(case, GGUFCase) else "transformers"
    found = Result(
        error=float(f"{error:.1e}"),
        against=f"{distribution} {importlib.metadata.version(distribution)}",
        day=datetime.date.today().isoformat(),
        case=_DIGESTS[name],
    )
    with PATH.open("r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # Several processes may run tests.
        results = json.load(file) | {name: asdict(found)}
        file.seek(0)
        file.write(json.dumps(results, indent=1, sort_keys=True) + "\n")
        file.truncate()


def results() -> dict[str, Result]:
    """The results of all cases as they are, by the names of their rows."""
    found = {name: Result(**told) for name, told in json.loads(PATH.read_text()).items()}
    return {name: result for name, result in found.items() if result.case == _DIGESTS.get(name)}


def _digest(case: FamilyCase | GGUFCase) -> str:
    """Of what decides a comparison's result but code."""
    values = {field: getattr(case, field.name) for field in fields(case) if field.name not in _NOT_TOLD}
    # A field that is new, with a value that changes nothing, makes no other case.
    told = {field.name: value for field, value in values.items() if value not in (field.default, {})}
    return hashlib.sha256(json.dumps(told, sort_keys=True, default=str).encode()).hexdigest()[:16]


# Before any test: transformers writes into tables of a configuration that it is given.
_DIGESTS: Mapping[str, str] = {
    **{name: _digest(case) for name, case in (CASES | WINDOWED).items()},
    **{f"{name}{SUFFIX}": _digest(case) for name, case in GGUF_CASES.items()},
}
