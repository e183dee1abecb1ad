"""PyTorch: a program of torch.export with its weights, whose operators it calls one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any


def prepare(threads: int) -> None:
    """What loading would import takes seconds, and a program that serves has it already."""
    import torch
    import torch._export.serde.serialize
    import torch.export.pt2_archive._package

    torch.set_num_threads(threads)


def load(
    artifact: Path, inputs: Sequence[str], outputs: Sequence[str], threads: int
) -> Callable[[dict[str, Any]], dict[str, Any]]:
    del threads
    import torch

    module = torch.export.load(str(artifact)).module()

    def call(arrays: dict[str, Any]) -> dict[str, Any]:
        with torch.inference_mode():
            made = module(*(torch.from_numpy(arrays[name]) for name in inputs))
        made = made if isinstance(made, tuple | list) else (made,)
        return {name: value.numpy() for name, value in zip(outputs, made, strict=True)}

    return call
