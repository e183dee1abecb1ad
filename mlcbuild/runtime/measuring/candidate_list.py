"""What may be chosen of a kernel, and what it is called with: a JSON file that ListCandidates writes."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

VERSION = 2


@dataclass(frozen=True, kw_only=True)
class Argument:
    """A tensor that a kernel takes or fills. A size that is known only at run time is a name."""

    shape: tuple[int | str, ...]
    dtype: str

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
            "arguments": [{"shape": list(each.shape), "dtype": each.dtype} for each in self.arguments],
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
                arguments=tuple(
                    Argument(shape=_shape(each["shape"]), dtype=str(each["dtype"])) for each in document["arguments"]
                ),
                sizes=_integers(document["sizes"]),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"candidates without their parts: {error!r}") from error


def _integers(each: Sequence[Mapping[str, Any]]) -> tuple[Mapping[str, int], ...]:
    return tuple({str(name): int(value) for name, value in one.items()} for one in each)


def _shape(sizes: Sequence[Any]) -> tuple[int | str, ...]:
    return tuple(size if isinstance(size, int) else str(size) for size in sizes)
