"""llama.cpp itself, as the xllamacpp wheel has it: its tokenizer and its dequantization, called by their C names."""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

_PARAMETERS = ctypes.c_byte * 512  # llama_model_params, which is shorter; it is passed on the stack


class _ModelParameters(ctypes.Structure):
    _fields_ = (("content", _PARAMETERS),)


@functools.cache
def library() -> Any:
    """The shared library; the test is skipped without it."""
    module = pytest.importorskip("xllamacpp.xllamacpp", reason="llama.cpp is not installed")
    loaded = ctypes.CDLL(module.__file__)
    loaded.llama_model_default_params.restype = _ModelParameters
    loaded.llama_model_load_from_file.restype = ctypes.c_void_p
    loaded.llama_model_load_from_file.argtypes = [ctypes.c_char_p, _ModelParameters]
    loaded.llama_model_get_vocab.restype = ctypes.c_void_p
    loaded.llama_model_get_vocab.argtypes = [ctypes.c_void_p]
    loaded.llama_model_free.argtypes = [ctypes.c_void_p]
    loaded.llama_tokenize.argtypes = [
        ctypes.c_void_p,
        ctypes.c_char_p,
        ctypes.c_int32,
        ctypes.c_void_p,
        ctypes.c_int32,
        ctypes.c_bool,
        ctypes.c_bool,
    ]
    loaded._silence = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(lambda *_: None)
    loaded.llama_log_set(loaded._silence, None)
    loaded.llama_backend_init()
    return loaded


class LlamaCppModel:
    """A model loaded by llama.cpp, for its vocabulary."""

    def __init__(self, path: Path) -> None:
        self._model = library().llama_model_load_from_file(str(path).encode(), library().llama_model_default_params())
        assert self._model, f"llama.cpp does not load {path}"
        self._vocabulary = library().llama_model_get_vocab(self._model)

    def encode(self, text: str, *, special: bool = False) -> list[int]:
        """The tokens of a text; `special`: with what the model adds, and special tokens read in the text."""
        data = text.encode()
        room = len(data) + 8
        found = (ctypes.c_int32 * room)()
        count = library().llama_tokenize(self._vocabulary, data, len(data), found, room, special, special)
        assert count >= 0
        return list(found[:count])

    def close(self) -> None:
        library().llama_model_free(self._model)


def dequantized(kind: str, stored: bytes, elements: int) -> np.ndarray[Any, Any]:
    """Numbers of blocks of a quantized type, by the name in llama.cpp's functions, such as `q4_K`."""
    numbers = np.zeros(elements, np.float32)
    getattr(library(), f"dequantize_row_{kind}")(
        ctypes.c_char_p(stored), numbers.ctypes.data_as(ctypes.c_void_p), ctypes.c_int64(elements)
    )
    return numbers
