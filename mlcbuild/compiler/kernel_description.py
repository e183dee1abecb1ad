"""What a kernel computes, for people and programs. A manifest has it beside the kernel's name, which is its content's.

It belongs to a model and not to the kernel: models share kernels, and call each from functions of their own, with
weights of their own. So no kernel's file has it, and no key of a kernel counts it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Size = int | str

_LONGEST = 60  # columns of a text before the content's name
_DIGITS = 8  # of a kernel's name


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelDescription:
    """`operation` is the name of what it computes (`dequantize_matmul`).

    `functions` are the functions of the library that lead to it, `parameters` the modules whose weights it reads
    (`model.layers.*.self_attn.qkv_proj`), in the model's order. `shape` is that of its first result; a size that is
    known only at run time is a letter. `matrix` are the rows and columns of the weights that a product multiplies, ()
    for all else.
    """

    operation: str
    functions: tuple[str, ...] = ()
    parameters: tuple[str, ...] = ()
    shape: tuple[Size, ...] = ()
    matrix: tuple[Size, ...] = ()

    @staticmethod
    def read(document: Mapping[str, Any]) -> KernelDescription:
        """Raises ValueError for what `written` has not made."""
        try:
            return KernelDescription(
                operation=str(document["operation"]),
                functions=tuple(map(str, document["functions"])),
                parameters=tuple(map(str, document["parameters"])),
                shape=tuple(document["shape"]),
                matrix=tuple(document["matrix"]),
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"a kernel's description without its parts: {error!r}") from error

    def written(self) -> dict[str, Any]:
        """The description as a JSON object."""
        return {
            "operation": self.operation,
            "functions": self.functions,
            "parameters": self.parameters,
            "shape": self.shape,
            "matrix": self.matrix,
        }

    def text(self, kernel: str) -> str:
        """`dequantize_matmul qkv_proj 6144×4096 ·×n prefill+2 (ed710c27)`: at most 60 columns, then the content's name.

        The operation; the first module of `parameters`, and how many more there are; the shape; the shortest name of
        `functions`, and how many more. What has no room is left out. `kernel` is the content's whole name.
        """
        shown = self.operation if len(self.operation) <= _LONGEST else f"{self.operation[: _LONGEST - 1]}…"
        functions = sorted(self.functions, key=lambda name: (len(name), name))
        for part in (_first(self._modules), self._shape, _first(functions)):
            if part != self.operation and part and len(shown) + 1 + len(part) <= _LONGEST:
                shown += f" {part}"
        return f"{shown} ({short_name(kernel)})"

    @property
    def _modules(self) -> list[str]:
        return list(dict.fromkeys(name.rpartition(".")[2] for name in self.parameters))

    @property
    def _shape(self) -> str:
        """`6144×4096 ·×n` for a matrix by n vectors, else the result's shape without sizes of one: `n×4096`."""
        if self.matrix:
            return f"{_times(self.matrix)} ·×{_product(self.shape[:-1])}"
        return _times([size for size in self.shape if size != 1] or self.shape[:1])


def short_name(kernel: str) -> str:
    """The first digits of a kernel's name: `ed710c27` for `kernel_ed710c27…`."""
    return kernel.removeprefix("kernel_")[:_DIGITS]


def _first(names: Sequence[str]) -> str:
    if not names:
        return ""
    return names[0] if len(names) == 1 else f"{names[0]}+{len(names) - 1}"


def _times(sizes: Sequence[Size]) -> str:
    return "×".join(map(str, sizes))


def _product(sizes: Sequence[Size]) -> str:
    """`12`, `n`, `4n`."""
    number = math.prod(size for size in sizes if isinstance(size, int))
    letters = "".join(size for size in sizes if isinstance(size, str))
    return letters if letters and number == 1 else f"{number}{letters}"
