"""AOTInductor: model.pt2, a library without weights, and beside it weights.safetensors and constants.safetensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any


def prepare(threads: int) -> None:
    """What loading would import takes seconds, and a program that serves has it already."""
    import torch
    import torch._inductor.package

    torch.set_num_threads(threads)


def load(
    artifact: Path, inputs: Sequence[str], outputs: Sequence[str], threads: int
) -> Callable[[dict[str, Any]], dict[str, Any]]:
    del threads
    import safetensors
    import torch

    loaded = torch._inductor.aoti_load_package(str(artifact / "model.pt2"))
    values: dict[str, Any] = {}
    for name in ("weights", "constants"):
        with safetensors.safe_open(artifact / f"{name}.safetensors", framework="pt") as opened:
            values |= {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118  # It is no mapping.
    loaded.load_constants({name: values[name] for name in loaded.get_constant_fqns()}, check_full_update=True)

    def call(arrays: dict[str, Any]) -> dict[str, Any]:
        with torch.inference_mode():
            made = loaded(*(torch.from_numpy(arrays[name]) for name in inputs))
        made = made if isinstance(made, tuple | list) else (made,)
        return {name: value.numpy() for name, value in zip(outputs, made, strict=True)}

    return call
