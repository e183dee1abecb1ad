"""The kernels of a target's library, by where they come from, as its metadata names them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from mlcbuild.cli.output import text
from mlcbuild.cli.output.terminal import Style
from mlcbuild.engine.executor import FileEntry

_MADE_BY, _PATH = "Lower", "out/metadata.json"

KernelsBySource = Mapping[str, Sequence[str]]


def metadata_entry(mnemonic: str, outputs: Sequence[FileEntry] | None) -> FileEntry | None:
    """The file with a library's metadata among an action's outputs; None if it makes none."""
    if mnemonic != _MADE_BY:
        return None
    return next((entry for entry in outputs or () if entry.path == _PATH), None)


def read_kernels(data: bytes) -> KernelsBySource | None:
    """What metadata say of kernels; None for those of versions that said nothing."""
    document: dict[str, Any] = json.loads(data)
    return document.get("kernels")


def summary(kernels: KernelsBySource) -> str:
    """`kernels: 2 triton, 31 cuda, 7 tvm`, the most first."""
    ordered = sorted(kernels.items(), key=lambda item: (-len(item[1]), item[0]))
    return "kernels: " + ", ".join(f"{len(names):,} {text.printable(source)}" for source, names in ordered)


def kernel_lines(kernels: KernelsBySource, style: Style) -> list[str]:
    """Each kernel's name below where it comes from."""
    lines = ["", style.bold("kernels")]
    for source, names in sorted(kernels.items()):
        lines.append(f"  {text.printable(source)} ×{len(names):,}")
        lines += [f"    {text.printable(name)}" for name in names]
    return lines
