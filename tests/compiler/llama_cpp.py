"""llama.cpp itself, as the xllamacpp wheel has it: its tokenizer, its quantization and its logits, called by their C
names."""

from __future__ import annotations

import contextlib
import ctypes
import functools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.compiler.tiny_models import Array
from tests.parity_packages import parity_package

_PARAMETERS = ctypes.c_byte * 512  # llama_model_params, which is shorter; it is passed on the stack
_F32 = 0  # of ggml_type


class _ModelParameters(ctypes.Structure):
    _fields_ = (("content", _PARAMETERS),)


class _ContextParameters(ctypes.Structure):
    """llama_context_params of the pinned wheel, as far as it is set here."""

    _fields_ = (
        *((name, ctypes.c_uint32) for name in ("n_ctx", "n_batch", "n_ubatch")),
        ("others", ctypes.c_uint32 * 4),
        *((name, ctypes.c_int32) for name in ("n_threads", "n_threads_batch")),
        ("types", ctypes.c_int32 * 4),
        ("flash_attn_type", ctypes.c_int32),
        ("rope", ctypes.c_int32 * 8),
        ("callback", ctypes.c_void_p * 2),
        *((name, ctypes.c_int32) for name in ("type_k", "type_v")),
        ("rest", ctypes.c_byte * 400),
    )


class _Batch(ctypes.Structure):
    """llama_batch."""

    _fields_ = (
        ("n_tokens", ctypes.c_int32),
        ("token", ctypes.POINTER(ctypes.c_int32)),
        ("embd", ctypes.c_void_p),
        ("pos", ctypes.POINTER(ctypes.c_int32)),
        ("n_seq_id", ctypes.POINTER(ctypes.c_int32)),
        ("seq_id", ctypes.POINTER(ctypes.POINTER(ctypes.c_int32))),
        ("logits", ctypes.POINTER(ctypes.c_int8)),
    )


@functools.cache
def library() -> Any:
    """The shared library. Raises what `parity_package` raises without it."""
    module = parity_package("xllamacpp.xllamacpp")
    loaded: Any = ctypes.CDLL(module.__file__)
    pointer = ctypes.c_void_p
    for name, result, arguments in (
        ("llama_model_default_params", _ModelParameters, []),
        ("llama_model_load_from_file", pointer, [ctypes.c_char_p, _ModelParameters]),
        ("llama_model_get_vocab", pointer, [pointer]),
        ("llama_model_free", None, [pointer]),
        ("llama_vocab_n_tokens", ctypes.c_int32, [pointer]),
        (
            "llama_tokenize",
            ctypes.c_int32,
            [pointer, ctypes.c_char_p, ctypes.c_int32, pointer, ctypes.c_int32, ctypes.c_bool, ctypes.c_bool],
        ),
        ("llama_context_default_params", _ContextParameters, []),
        ("llama_init_from_model", pointer, [pointer, _ContextParameters]),
        ("llama_n_ctx", ctypes.c_uint32, [pointer]),
        ("llama_n_batch", ctypes.c_uint32, [pointer]),
        ("llama_decode", ctypes.c_int32, [pointer, _Batch]),
        ("llama_get_logits_ith", ctypes.POINTER(ctypes.c_float), [pointer, ctypes.c_int32]),
        ("llama_model_n_embd", ctypes.c_int32, [pointer]),
        ("llama_set_embeddings", None, [pointer, ctypes.c_bool]),
        ("llama_encode", ctypes.c_int32, [pointer, _Batch]),
        ("llama_get_embeddings_ith", ctypes.POINTER(ctypes.c_float), [pointer, ctypes.c_int32]),
        ("llama_get_embeddings_seq", ctypes.POINTER(ctypes.c_float), [pointer, ctypes.c_int32]),
        ("llama_free", None, [pointer]),
        (
            "ggml_quantize_chunk",
            ctypes.c_size_t,
            [ctypes.c_int, pointer, pointer, *[ctypes.c_int64] * 3, pointer],
        ),
    ):
        function = getattr(loaded, name)
        function.restype, function.argtypes = result, arguments
    loaded._silence = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(lambda *_: None)
    loaded.llama_log_set(loaded._silence, None)
    loaded.llama_backend_init()
    return loaded


class LlamaCppModel:
    """A model loaded by llama.cpp, for its vocabulary and its logits."""

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

    def logits(self, tokens: Sequence[int], *, context: int = 256) -> Array:
        """Logits (n, vocabulary) of every token of a text, float32, with keys and values in float32 and attention that
        is not fused, so that nothing is rounded to less."""
        with self._running(context) as running:
            assert library().llama_decode(running, _batch(tokens)) == 0
            vocabulary = library().llama_vocab_n_tokens(self._vocabulary)
            rows = [library().llama_get_logits_ith(running, place)[:vocabulary] for place in range(len(tokens))]
            return np.array(rows, np.float32)

    def embeddings(self, tokens: Sequence[int], *, pooled: bool, context: int = 256) -> Array:
        """What an encoder makes of a text, float32: the vector (hidden) that the file's kind of pooling makes, not
        normalized; of a file without pooling the hidden states (n, hidden)."""
        with self._running(context) as running:
            library().llama_set_embeddings(running, True)
            assert library().llama_encode(running, _batch(tokens)) == 0
            size = library().llama_model_n_embd(self._model)
            if pooled:
                return np.array(library().llama_get_embeddings_seq(running, 0)[:size], np.float32)
            rows = [library().llama_get_embeddings_ith(running, place)[:size] for place in range(len(tokens))]
            return np.array(rows, np.float32)

    @contextlib.contextmanager
    def sequence(self, *, context: int, threads: int) -> Iterator[Callable[[Sequence[int]], Array]]:
        """A function that reads tokens, each call after those of the calls before, and returns the last one's logits
        (vocabulary), with llama.cpp's own choices of types and attention."""
        parameters = library().llama_context_default_params()
        parameters.n_ctx = parameters.n_batch = context
        parameters.n_threads = parameters.n_threads_batch = threads
        running = library().llama_init_from_model(self._model, parameters)
        assert running, "llama.cpp makes no context"
        vocabulary = library().llama_vocab_n_tokens(self._vocabulary)
        read = 0

        def forward(tokens: Sequence[int]) -> Array:
            nonlocal read
            assert library().llama_decode(running, _batch(tokens, first=read, every=False)) == 0
            read += len(tokens)
            return np.array(library().llama_get_logits_ith(running, -1)[:vocabulary], np.float32)

        try:
            yield forward
        finally:
            library().llama_free(running)

    @contextlib.contextmanager
    def _running(self, context: int) -> Iterator[Any]:
        parameters = library().llama_context_default_params()
        parameters.n_ctx = parameters.n_batch = parameters.n_ubatch = context
        parameters.n_threads = parameters.n_threads_batch = 1
        parameters.type_k = parameters.type_v = _F32
        parameters.flash_attn_type = 0
        running = library().llama_init_from_model(self._model, parameters)
        assert running, "llama.cpp makes no context"
        try:
            # The structure's layout is that of the pinned wheel.
            assert (library().llama_n_ctx(running), library().llama_n_batch(running)) == (context, context)
            yield running
        finally:
            library().llama_free(running)

    def close(self) -> None:
        library().llama_model_free(self._model)


def _batch(tokens: Sequence[int], *, first: int = 0, every: bool = True) -> _Batch:
    """Tokens of one sequence from the position `first` on, of which `every` one has results, or the last alone."""
    count, one = len(tokens), ctypes.pointer(ctypes.c_int32(0))
    numbers = ctypes.c_int32 * count
    return _Batch(
        n_tokens=count,
        token=numbers(*tokens),
        pos=numbers(*range(first, first + count)),
        n_seq_id=numbers(*[1] * count),
        seq_id=(ctypes.POINTER(ctypes.c_int32) * count)(*[one] * count),
        logits=(ctypes.c_int8 * count)(*[int(every)] * (count - 1), 1),
    )


def dequantized(kind: str, stored: bytes, elements: int) -> Array:
    """Numbers of blocks of a quantized type, by the name in llama.cpp's functions, such as `q4_K`."""
    numbers = np.zeros(elements, np.float32)
    getattr(library(), f"dequantize_row_{kind}")(
        ctypes.c_char_p(stored), numbers.ctypes.data_as(ctypes.c_void_p), ctypes.c_int64(elements)
    )
    return numbers


def quantized(numbers: Array, type_number: int, *, block_elements: int, block_bytes: int) -> Array:
    """A matrix, or experts' (…, columns), as a type of ggml stores it: uint8 (…, bytes of a row)."""
    columns = numbers.shape[-1]
    rows = numbers.size // columns
    found = np.zeros((rows, columns // block_elements * block_bytes), np.uint8)
    given = np.ascontiguousarray(numbers, np.float32)
    written = library().ggml_quantize_chunk(type_number, given.ctypes.data, found.ctypes.data, 0, rows, columns, None)
    assert written == found.size
    return found.reshape(*numbers.shape[:-1], -1)
