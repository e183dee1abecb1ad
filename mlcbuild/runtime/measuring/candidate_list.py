"""What may be chosen of a kernel, and what it is called with: a JSON file that ListCandidates writes."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

VERSION = 2
_KINDS = {"random": 0, "scalar": 1, "filled": 1, "steps": 1, "counted": 2, "shuffled": 0}


@dataclass(frozen=True, kw_only=True)
class Content:
    """What a tensor holds, for a kernel that reads more than numbers of it.

    "random" numbers; a "scalar" is no tensor but its one parameter, a number; "filled" with one number; "steps" of so
    many: 0, n, 2n, …; "counted" from a first number on, and again after so many; "shuffled": 0, 1, 2, … in any order. A
    parameter is a number, or the name of a size. Raises ValueError for another kind.
    """

    kind: str = "random"
    parameters: tuple[int | float | str, ...] = ()

    def __post_init__(self) -> None:
        if len(self.parameters) != _KINDS.get(self.kind, -1):
            raise ValueError(f"no content of a tensor: {self}")

    def values(self, bound: Mapping[str, int]) -> tuple[int | float, ...]:
        """The parameters with these sizes. Raises KeyError for one that is not among them."""
        return tuple(bound[each] if isinstance(each, str) else each for each in self.parameters)


RANDOM = Content()


@dataclass(frozen=True, kw_only=True)
class Argument:
    """A tensor that a kernel takes or fills, or a number. A size that is known only at run time is a name."""

    shape: tuple[int | str, ...]
    dtype: str
    content: Content = RANDOM

    def sizes(self, bound: Mapping[str, int]) -> tuple[int, ...]:
        """The shape with these sizes. Raises KeyError for one that is not among them."""
        return tuple(size if isinstance(size, int) else bound[size] for size in self.shape)

    def size_bytes(self, bound: Mapping[str, int]) -> int:
        bits = int(re.findall(r"\d+", self.dtype)[0]) if self.dtype != "bool" else 8
        return math.prod(self.sizes(bound)) * bits // 8


@dataclass(frozen=True, kw_only=True)
class CandidateList:
    """`shapes` are those of the kernel's rule, the default first; none where nothing can be chosen. It is measured at
    each of `sizes`: those that are known only at run time, by name; one without a name where there are none."""

    kernel: str
    rule: str = ""
    shapes: tuple[Mapping[str, int], ...] = ()
    arguments: tuple[Argument, ...] = ()
    sizes: tuple[Mapping[str, int], ...] = ({},)

    def written(self) -> dict[str, Any]:
        return {
            "version": VERSION,
            "kernel": self.kernel,
            "rule": self.rule,
            "shapes": [dict(shape) for shape in self.shapes],
            "arguments": [_written(each) for each in self.arguments],
            "sizes": [dict(each) for each in self.sizes],
        }

    def to_json(self) -> str:
        return json.dumps(self.written(), sort_keys=True) + "\n"

    @staticmethod
    def read(document: Any) -> CandidateList:
        """Raises ValueError for what `written` has not made."""
        try:
            if document["version"] != VERSION:
                raise ValueError(f"candidates of version {document['version']!r}, not {VERSION}")
            return CandidateList(
                kernel=str(document["kernel"]),
                rule=str(document["rule"]),
                shapes=_integers(document["shapes"]),
                arguments=tuple(_argument(each) for each in document["arguments"]),
                sizes=_integers(document["sizes"]),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"candidates without their parts: {error!r}") from error


def _written(argument: Argument) -> dict[str, Any]:
    """An argument whose numbers are random says nothing of them."""
    content = argument.content
    told = {} if content == RANDOM else {"content": [content.kind, *content.parameters]}
    return {"shape": list(argument.shape), "dtype": argument.dtype, **told}


def _argument(document: Mapping[str, Any]) -> Argument:
    kind, *parameters = document.get("content", [RANDOM.kind])
    return Argument(
        shape=_shape(document["shape"]),
        dtype=str(document["dtype"]),
        content=Content(kind=str(kind), parameters=tuple(parameters)),
    )


def _integers(each: Sequence[Mapping[str, Any]]) -> tuple[Mapping[str, int], ...]:
    return tuple({str(name): int(value) for name, value in one.items()} for one in each)


def _shape(sizes: Sequence[Any]) -> tuple[int | str, ...]:
    return tuple(size if isinstance(size, int) else str(size) for size in sizes)
