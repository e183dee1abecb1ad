"""What may be chosen of a kernel, and what it is called with: a JSON file that ListCandidates writes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

VERSION = 1


@dataclass(frozen=True, kw_only=True)
class Argument:
    """A tensor that a kernel takes or fills. A size that is known only at run time is a name."""

    shape: tuple[int | str, ...]
    dtype: str

    def sizes(self, bound: Mapping[str, int]) -> tuple[int, ...]:
        """The shape with these sizes. Raises KeyError for one that is not among them."""
        return tuple(size if isinstance(size, int) else bound[size] for size in self.shape)


@dataclass(frozen=True, kw_only=True)
class CandidateList:
    """`shapes` are those of the kernel's rule, the default first; none where nothing can be chosen."""

    kernel: str
    rule: str = ""
    shapes: tuple[Mapping[str, int], ...] = ()
    arguments: tuple[Argument, ...] = ()

    @property
    def unknown_sizes(self) -> tuple[str, ...]:
        """The names of the sizes that are known only at run time, sorted."""
        return tuple(sorted({size for each in self.arguments for size in each.shape if isinstance(size, str)}))

    def written(self) -> dict[str, Any]:
        return {
            "version": VERSION,
            "kernel": self.kernel,
            "rule": self.rule,
            "shapes": [dict(shape) for shape in self.shapes],
            "arguments": [{"shape": list(each.shape), "dtype": each.dtype} for each in self.arguments],
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
                shapes=tuple({str(name): int(value) for name, value in one.items()} for one in document["shapes"]),
                arguments=tuple(
                    Argument(shape=_shape(each["shape"]), dtype=str(each["dtype"])) for each in document["arguments"]
                ),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"candidates without their parts: {error!r}") from error


def _shape(sizes: Sequence[Any]) -> tuple[int | str, ...]:
    return tuple(size if isinstance(size, int) else str(size) for size in sizes)
