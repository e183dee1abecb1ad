"""ExecuTorch: a program, whose method `forward` it calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any


def prepare(threads: int) -> None:
    import torch  # noqa: F401
    from executorch.extension.pybindings import portable_lib

    # Before anything runs; XNNPACK takes its threads of there.
    portable_lib._unsafe_reset_threadpool(threads)


def load(
    artifact: Path, inputs: Sequence[str], outputs: Sequence[str], threads: int
) -> Callable[[dict[str, Any]], dict[str, Any]]:
    del threads
    import torch
    from executorch.runtime import Runtime

    method = Runtime.get().load_program(artifact).load_method("forward")

    def call(arrays: dict[str, Any]) -> dict[str, Any]:
        made = method.execute([torch.from_numpy(arrays[name]) for name in inputs])
        return {name: value.numpy() for name, value in zip(outputs, made, strict=True)}

    return call
