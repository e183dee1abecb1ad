"""A model package on disk: which files it has, and what they say of the model.

The directory holds `lib.so`, `mlc-chat-config.json`, `tensor-cache.json` with its shards, and the
tokenizer's files. Where a platform's libraries have another ending, the library is `lib` with that one.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlcbuild.errors import UsageError

_LIBRARY = "lib.so"
CHAT_CONFIG = "mlc-chat-config.json"
WEIGHTS_INDEX = "tensor-cache.json"
TOKENIZER = "tokenizer.json"
TOKENIZER_CONFIG = "tokenizer_config.json"


@dataclass(frozen=True, kw_only=True)
class ModelPackage:
    """A directory that has every file of a package, with its configurations parsed."""

    directory: Path
    library: Path
    chat_config: dict[str, Any]
    tokenizer_config: dict[str, Any]

    @staticmethod
    def open(directory: Path) -> ModelPackage:
        """Raises UsageError for a directory that is no package."""
        needed = (CHAT_CONFIG, WEIGHTS_INDEX, TOKENIZER)
        missing = [name for name in needed if not (directory / name).is_file()]
        library = _find_library(directory)
        if library is None or missing:
            missing = missing if library else [_LIBRARY, *missing]
            raise UsageError(
                f"{directory} is no model package: it has no {' and no '.join(missing)}",
                advice=("build a model_package target, and give its output directory",),
            )
        configured = directory / TOKENIZER_CONFIG
        return ModelPackage(
            directory=directory,
            library=library,
            chat_config=read_object(directory / CHAT_CONFIG),
            tokenizer_config=read_object(configured) if configured.is_file() else {},
        )

    @property
    def is_embedding(self) -> bool:
        """Whether the model makes vectors of texts, and generates none."""
        return self.chat_config.get("model_task") == "embedding"

    @property
    def stop_token_ids(self) -> frozenset[int]:
        """The tokens that end an answer."""
        ends = self.chat_config.get("eos_token_id", [])
        template = self.chat_config.get("conv_template") or {}
        ids = [*(ends if isinstance(ends, list) else [ends]), *template.get("stop_token_ids", [])]
        return frozenset(number for number in ids if isinstance(number, int))

    @property
    def stop_strings(self) -> tuple[str, ...]:
        """The texts that end an answer and are no part of it."""
        given = (self.chat_config.get("conv_template") or {}).get("stop_str") or []
        return tuple(text for text in (given if isinstance(given, list) else [given]) if isinstance(text, str) and text)


def refuse_generation(package: ModelPackage) -> None:
    """Raises UsageError for a package of a model that generates no text."""
    if package.is_embedding:
        raise UsageError(
            "the model makes embeddings and generates no text",
            advice=("use --embed TEXT, or --batch FILE with requests for embeddings",),
        )


def _find_library(directory: Path) -> Path | None:
    """The library of a package: `lib.so`, or else the only file whose name is `lib` and an ending."""
    if (directory / _LIBRARY).is_file():
        return directory / _LIBRARY
    found = [path for path in directory.glob("lib.*") if path.is_file()]
    return found[0] if len(found) == 1 else None


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file of a package. Raises UsageError where there is none."""
    try:
        document = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not JSON: {error}", advice=("build the package again",)) from error
    if not isinstance(document, dict):
        raise UsageError(f"{path} does not hold a JSON object", advice=("build the package again",))
    return document
