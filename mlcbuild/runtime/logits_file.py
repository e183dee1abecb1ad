"""Logits of prompts in a file, as NumPy reads it: .npy holds those of one prompt, .npz those of any number with tokens.

A file is renamed into its place when it is whole.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from mlcbuild.runtime.logits import Array
from mlcbuild.runtime.logits_names import NPZ


class LogitsFile:
    """A file under way, to be used in a `with` block: what the block leaves by an exception is not kept.

    Logits are float32 (vocabulary,) or (tokens, vocabulary), tokens int32 (tokens,). In a .npz they are the arrays
    `logits` and `tokens`, of a batch `logits.N` and `tokens.N` for the request of line N.
    """

    def __init__(self, path: Path) -> None:
        """Raises OSError where the file cannot be written."""
        self._path = path
        self._temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        self._archive = zipfile.ZipFile(self._temporary, "w") if path.suffix == NPZ else None
        if self._archive is None:
            self._temporary.touch()

    def add(self, tokens: Sequence[int], logits: Array, *, number: int | None = None) -> None:
        """Write a prompt's, in a batch with the number of its line."""
        if self._archive is None:
            with self._temporary.open("wb") as stream:
                np.save(stream, logits)
            return
        ending = "" if number is None else f".{number}"
        self._write(f"tokens{ending}", np.asarray(tokens, np.int32))
        self._write(f"logits{ending}", logits)

    def _write(self, name: str, array: Array) -> None:
        assert self._archive is not None
        # A date of its own, so that equal logits make equal files.
        entry: Any = zipfile.ZipInfo(f"{name}.npy", date_time=(1980, 1, 1, 0, 0, 0))
        with self._archive.open(entry, "w", force_zip64=True) as stream:
            np.lib.format.write_array(stream, array)

    def __enter__(self) -> LogitsFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._archive is not None:
            self._archive.close()
        if kind is None:
            self._temporary.replace(self._path)
        else:
            self._temporary.unlink(missing_ok=True)
