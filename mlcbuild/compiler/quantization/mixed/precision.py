"""`precision.json`: which scheme each matrix of a model is stored by, where they are several.

::

    {
      "version": 1,
      "quantization": {"default": "q4f16_1", "lm_head": "q8f16_1", "model.layers.*.mlp.down_proj": "q8f16_1"}
    }

Keys are MLC-LLM's names of parameters, with or without `.weight`, or shell patterns of them, in which `*` stands for
any text. A name decides before any pattern, of patterns the first that matches, and `default` for all others. People
write such a table in a `BUILD.toml`, or such a file; ChoosePrecision writes a file, and AssignPrecision makes one of
either that has names alone, and only those of the default. Further fields of a file, such as what was measured, are for
people.
"""

from __future__ import annotations

import fnmatch
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from mlcbuild.errors import StageError

VERSION = 1
DEFAULT = "default"
_SUFFIX = ".weight"


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """The names of schemes: `default`, and those of `choices`, which are pairs of a name or pattern and a scheme."""

    default: str
    choices: tuple[tuple[str, str], ...] = ()
    # Derived: the schemes by key, the keys that are names by their names, and those that are patterns with these.
    _schemes: Mapping[str, str] = field(init=False, repr=False, compare=False)
    _names: Mapping[str, str] = field(init=False, repr=False, compare=False)
    _patterns: tuple[tuple[str, re.Pattern[str]], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        own = {key: key.removesuffix(_SUFFIX) for key, _ in self.choices}
        names = {name: key for key, name in own.items() if not _is_pattern(key)}
        patterns = ((key, re.compile(fnmatch.translate(name))) for key, name in own.items() if _is_pattern(key))
        object.__setattr__(self, "_schemes", dict(self.choices))
        object.__setattr__(self, "_names", names)
        object.__setattr__(self, "_patterns", tuple(patterns))

    @staticmethod
    def of_table(table: Mapping[str, str]) -> Precision:
        """The precision of a table with the key `default`."""
        return Precision(
            default=table[DEFAULT], choices=tuple((key, scheme) for key, scheme in table.items() if key != DEFAULT)
        )

    @property
    def table(self) -> dict[str, str]:
        return {DEFAULT: self.default, **dict(self.choices)}

    @property
    def schemes(self) -> tuple[str, ...]:
        """The schemes that it names, each once, the default first."""
        return tuple(dict.fromkeys((self.default, *sorted(scheme for _, scheme in self.choices))))

    def scheme(self, parameter: str) -> str:
        """The scheme of a parameter."""
        key = self._decides(parameter)
        return self.default if key is None else self._schemes[key]

    def assigned(self, parameters: Iterable[str]) -> Precision:
        """The same for these parameters, by their names alone. Raises StageError for a name or pattern that decides
        about none of them."""
        decided = {name: key for name in parameters if (key := self._decides(name)) is not None}
        deciding = set(decided.values())
        for key in self._schemes:
            if key not in deciding:
                raise StageError(f'no matrix of the model is "{key}", or an earlier pattern has all that are')
        others = {name: self._schemes[key] for name, key in decided.items() if self._schemes[key] != self.default}
        return Precision(default=self.default, choices=tuple(others.items()))

    def below(self, prefix: str) -> tuple[tuple[str, str], ...]:
        """The choices for parameters whose names begin with a prefix, without it. Only of names, no patterns."""
        return tuple((key.removeprefix(prefix), scheme) for key, scheme in self.choices if key.startswith(prefix))

    def _decides(self, parameter: str) -> str | None:
        own = parameter.removesuffix(_SUFFIX)
        if own in self._names:
            return self._names[own]
        return next((key for key, pattern in self._patterns if pattern.fullmatch(own)), None)


def _is_pattern(key: str) -> bool:
    return any(character in key for character in "*?[")


def parse_precision(content: bytes, *, where: str) -> Precision:
    """The precision in a file. Raises StageError for another file; `where` names it."""
    try:
        document = json.loads(content)
    except ValueError as error:
        raise StageError(f"{where} is not valid JSON: {error}") from error
    if not isinstance(document, dict) or document.get("version") != VERSION:
        raise StageError(f"{where} is no precision.json of version {VERSION}")
    table = document.get("quantization")
    if not isinstance(table, dict) or not all(isinstance(scheme, str) for scheme in table.values()):
        raise StageError(f'{where} has no object "quantization" of names and schemes')
    if DEFAULT not in table:
        raise StageError(f'"quantization" in {where} lacks "{DEFAULT}"')
    return Precision.of_table(table)


def read_precision(path: Path) -> Precision:
    """The precision in a file. Raises StageError for another file."""
    return parse_precision(path.read_bytes(), where=path.name)


def write_precision(precision: Precision, path: Path, *, measured: Mapping[str, object] | None = None) -> None:
    """A file of a line a choice, which people can read. `measured` says how it was chosen."""
    document: dict[str, object] = {"version": VERSION, "quantization": precision.table}
    if measured is not None:
        document["measured"] = measured
    path.write_text(json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")
