"""The parts of a GGUF file that `llama-gguf-split` has split: which files they are, and whether they are all.

Each part is a GGUF file of its own. `split.no` is its number, from 0, `split.count` how many there are, and
`split.tensors.count` how many tensors all of them have; the first part has the model's metadata. By their names they
are `NAME-00001-of-00003.gguf` and so on.
"""

from __future__ import annotations

import mmap
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mlcbuild.errors import StageError

GGUFValue = bool | int | float | str | list["GGUFValue"]

_NAME = re.compile(r"(?P<model>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf")
_ALL = "the source is a folder with all parts, or a filegroup of them"


@dataclass(frozen=True, slots=True, kw_only=True)
class GGUFTensor:
    """Where a tensor lies: `shape` slowest axis first (the file has it reversed), `begin` in bytes of the file, which
    is the part of number `part`."""

    name: str
    type_number: int  # ggml_type
    shape: tuple[int, ...]
    begin: int
    size_bytes: int
    part: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class GGUFPart:
    """A GGUF file that is open; one that is not split is its only part."""

    path: Path
    content: mmap.mmap
    metadata: Mapping[str, GGUFValue]
    tensors: Mapping[str, GGUFTensor]

    @property
    def count(self) -> int:
        return self._number("split.count", 1)

    @property
    def number(self) -> int:
        return self._number("split.no", 0)

    @property
    def all_tensors(self) -> int:
        return self._number("split.tensors.count", -1)

    def _number(self, key: str, default: int) -> int:
        value = self.metadata.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int):
            raise StageError(f'{self.path}: the metadata "{key}" is {value!r}; it has to be an integer')
        return value


def are_parts_of_one(names: Sequence[str]) -> bool:
    """Whether files have names of parts of one file, some or all of them."""
    found = [_NAME.fullmatch(name) for name in names]
    return len({one and (one["model"], one["count"]) for one in found}) == 1 and None not in found


def in_order(parts: Sequence[GGUFPart]) -> list[GGUFPart]:
    """The parts by their numbers. Raises StageError for a part that is missing, there twice, or of another file."""
    first = parts[0]
    if len(parts) == 1 and first.count <= 1:
        return [first]
    by_number: dict[int, GGUFPart] = {}
    for part in parts:
        _check_belongs(part, first)
        if not 0 <= part.number < part.count:
            raise StageError(f"{part.path} is damaged: it is part {part.number + 1} of {part.count}")
        other = by_number.setdefault(part.number, part)
        if other is not part:
            raise StageError(f"{other.path} and {part.path} are both part {part.number + 1} of {part.count}")
    if missing := [number + 1 for number in range(min(first.count, 1 << 16)) if number not in by_number]:
        shown = ", ".join(map(str, missing[:8])) + (", …" if len(missing) > 8 else "")
        raise StageError(
            f"{first.path} is one of {first.count} parts of a model, and part {shown} "
            f"{'is' if len(missing) == 1 else 'are'} missing",
            advice=(_ALL,),
        )
    return [by_number[number] for number in range(first.count)]


def joined_tensors(parts: Sequence[GGUFPart]) -> dict[str, GGUFTensor]:
    """The tensors of all parts, which are in order. Raises StageError for a tensor of two parts, and for another number
    of tensors than the parts say."""
    tensors: dict[str, GGUFTensor] = {}
    for number, part in enumerate(parts):
        for name, tensor in part.tensors.items():
            if name in tensors:
                raise StageError(f"the tensor {name} is both in {parts[tensors[name].part].path} and in {part.path}")
            tensors[name] = replace(tensor, part=number)
    said = parts[0].all_tensors
    if len(parts) > 1 and said != len(tensors):
        raise StageError(
            f"the {len(parts)} parts of {parts[0].path} have {len(tensors)} tensors, and should have {said}",
            advice=("fetch them again",),
        )
    return tensors


def _check_belongs(part: GGUFPart, first: GGUFPart) -> None:
    name, first_name = _NAME.fullmatch(part.path.name), _NAME.fullmatch(first.path.name)
    of_other_name = name and first_name and name["model"] != first_name["model"]
    if of_other_name or (part.count, part.all_tensors) != (first.count, first.all_tensors):
        raise StageError(
            f"{part.path} and {first.path} are not parts of one model",
            advice=(f"{_ALL} and no other GGUF file",),
        )
    if name and int(name["number"]) != part.number + 1:
        raise StageError(
            f"{part.path} is part {part.number + 1} of {part.count}, and no part {int(name['number'])}",
            advice=("its content is another part's: fetch it again",),
        )
