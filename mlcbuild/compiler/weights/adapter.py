"""Adapters, such as LoRA: differences to a model's weights, which lie in the same kinds of files as weights."""

from __future__ import annotations

import json
from pathlib import Path

from mlcbuild.errors import StageError

_CONFIG = "adapter_config.json"


def is_adapter_file(path: Path) -> bool:
    """Whether a file beside weights holds an adapter, by peft's names."""
    return path.name.startswith("adapter_model.")


def adapter_error(directory: Path) -> StageError | None:
    """What is wrong with a directory that holds an adapter and no model; None for another directory."""
    config = directory / _CONFIG
    if not config.is_file() or (directory / "model.safetensors").is_file():
        return None
    return StageError(
        f"{directory} holds an adapter ({_kind(config)}), not a model: {config}",
        advice=(f"give its base model{_base(config)} as the `source`, and the adapter as `lora`",),
    )


def _kind(config: Path) -> str:
    return str(_fields(config).get("peft_type") or "LoRA or its like")


def _base(config: Path) -> str:
    name = _fields(config).get("base_model_name_or_path")
    return f', "{name}",' if isinstance(name, str) and name else ""


def _fields(config: Path) -> dict[str, object]:
    try:
        document = json.loads(config.read_bytes())
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}
