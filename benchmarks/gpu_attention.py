"""How fast a new token attends to the key-value cache on a GPU: TVM's kernel and several of ours, in turn.

    python -m benchmarks.gpu_attention build DIRECTORY [--only NAME]    needs mlcbuild and no GPU
    python -m benchmarks.gpu_attention run DIRECTORY [--rounds N]       needs a GPU, its driver and NumPy

`build` compiles every candidate to a cubin, and writes the launches of a call for each context and batch. `run`
compares the candidate's numbers with NumPy, then records a CUDA graph of many calls. Each call reads other pages, so
many that they are no longer in the GPU's cache. It plays the graphs of all candidates in turn, and prints the median
time of a call and how many bytes of keys and values it reads a second.
"""

from __future__ import annotations

import ctypes
import json
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from mlcbuild.compiler.backends.cuda.kernels.attention_block import DecodeShape

try:
    from benchmarks.gpu_driver import Driver, command_line
except ImportError:  # run as a file, where nothing of mlcbuild is
    from gpu_driver import Driver, command_line  # type: ignore[import-not-found,no-redef]

KEY_HEADS, QUERY_HEADS, HEAD_DIM, PAGE = 8, 32, 128, 16  # Llama-3-8B's
CASES = [(32, 1), (64, 1), (200, 1), (512, 1), (4096, 1), (32, 8), (512, 8), (4096, 8)]  # context, batch
_PAGES = 8192  # 512 MB: more than any cache
_BASE = 256  # pages with numbers of their own, the others repeat them
_WORKSPACE = 32 * (HEAD_DIM + 2) * 4 * QUERY_HEADS  # bytes that a sequence takes at most of what the host allocates
_PAGE_BYTES = 2 * KEY_HEADS * PAGE * HEAD_DIM * 2


def build(directory: Path, only: str, arch: str) -> None:
    from mlcbuild.compiler.backends.cuda import nvrtc, source
    from mlcbuild.compiler.backends.cuda.stages.compile_device import OPTIONS
    from tests.compiler.backends.cuda.cuda_emulation import launches

    directory.mkdir(parents=True, exist_ok=True)
    entries = []
    for name, func in _candidates():
        if only not in name:
            continue
        cases = []
        for context, batch in CASES:
            arrays = _arrays(context, batch)
            text, started = launches(func, arrays, 0, 1.0, 500000.0, HEAD_DIM**-0.5)
            told = [
                {
                    "function": launch.function,
                    "grid": launch.grid,
                    "block": launch.block,
                    "shared": launch.shared,
                    "arguments": launch.arguments,
                }
                for launch in started
            ]
            cases.append({"context": context, "batch": batch, "launches": told})
            print(name, context, batch, [launch.grid for launch in started], flush=True)
        (directory / f"{name}.cubin").write_bytes(nvrtc.compile_text(source.lean(text), arch, OPTIONS))
        entries.append({"name": name, "cases": cases})
    (directory / "attention.json").write_text(json.dumps(entries))


def _candidates() -> Iterator[tuple[str, Any]]:
    import tvm
    from tvm.relax.frontend.nn.llm._decode_kernels import _attention_decode

    from mlcbuild.compiler.backends.cuda.kernels import attention
    from mlcbuild.compiler.script_parsing import quick_script_parsing
    from tests.compiler.backends.cuda.cuda_emulation import CUDA_TARGET

    with quick_script_parsing():
        target = tvm.target.Target(CUDA_TARGET)
        original = _attention_decode(KEY_HEADS, QUERY_HEADS, HEAD_DIM, "float16", False, {}, target)
    yield "tvm", original
    yield "chosen", attention.paged_decode(original, rope_scaling={})
    for warps, blocks, tokens, alone in [
        (4, 264, 64, 256),
        (1, 264, 64, 128),
        (2, 132, 64, 128),
        (2, 396, 64, 128),
        (2, 264, 32, 64),
        (2, 264, 32, 128),
        (2, 264, 64, 256),
        (4, 264, 64, 128),
        (8, 264, 128, 256),
        (2, 264, 64, 1 << 20),
    ]:
        shape = DecodeShape(warps=warps, blocks=blocks, tokens=tokens, alone=alone)
        name = f"w{warps}b{blocks}t{tokens}a{alone}"
        yield name, attention.paged_decode(original, rope_scaling={}, shape=shape)


def _arrays(context: int, batch: int) -> list[np.ndarray[Any, Any]]:
    """Queries, pages, their table, lengths, positions and results; pages and numbers of pages are left empty."""
    count = -(-context // PAGE)
    return [
        np.random.default_rng(0).standard_normal((batch, QUERY_HEADS, HEAD_DIM)).astype(np.float16),
        np.empty((_PAGES, 2, KEY_HEADS, PAGE, HEAD_DIM), np.float16),
        np.arange(batch + 1, dtype=np.int32) * count,
        np.empty(batch * count, np.int32),
        np.full(batch, (context - 1) % PAGE + 1, np.int32),
        np.zeros(batch, np.int32),
        np.full(batch, context - 1, np.int32),
        np.empty((batch, QUERY_HEADS, HEAD_DIM), np.float16),
        np.empty((batch, QUERY_HEADS), np.float32),
    ]


def run(directory: Path, only: str, rounds: int) -> None:
    driver = Driver()
    print(driver.name)
    entries = [entry for entry in json.loads((directory / "attention.json").read_text()) if only in entry["name"]]
    random = np.random.default_rng(1)
    base = random.standard_normal((_BASE, 2, KEY_HEADS, PAGE, HEAD_DIM)).astype(np.float16)
    pages = driver.allocate(_PAGES * _PAGE_BYTES)
    for first in range(0, _PAGES, _BASE):
        place = ctypes.c_uint64(pages.value + first * _PAGE_BYTES)
        driver("cuMemcpyHtoD_v2", place, ctypes.c_void_p(base.ctypes.data), ctypes.c_size_t(base.nbytes))
    numbers = random.permutation(_PAGES).astype(np.int32)
    results = []
    for number in range(len(CASES)):
        results += _measure(driver, directory, entries, number, base, pages, numbers, rounds)
    (directory / "attention-results.json").write_text(json.dumps({"device": driver.name, "results": results}))


def _measure(
    driver: Driver,
    directory: Path,
    entries: list[Any],
    number: int,
    base: np.ndarray[Any, Any],
    pages: ctypes.c_uint64,
    numbers: np.ndarray[Any, Any],
    rounds: int,
) -> list[dict[str, Any]]:
    context, batch = CASES[number]
    arrays = _arrays(context, batch)
    per_call = arrays[3].size
    calls = min(_PAGES // per_call, 2048)
    table = driver.upload(numbers)
    known = [None if place in (1, 3) else driver.upload(array) for place, array in enumerate(arrays)]
    known[1] = pages
    workspaces = [driver.allocate(_WORKSPACE * batch) for _ in range(2)]
    expected = _expected(arrays, base, numbers[:per_call], context)
    graphs = {}
    for entry in entries:
        started = entry["cases"][number]["launches"]
        functions = [
            driver.function(directory / f"{entry['name']}.cubin", launch["function"], launch["shared"])
            for launch in started
        ]

        def call(place: int, started: Any = started, functions: Any = functions) -> None:
            mine = [*known, *workspaces]
            mine[3] = ctypes.c_uint64(table.value + place * per_call * 4)
            for launch, function in zip(started, functions, strict=True):
                arguments = [_argument(mine, *given) for given in launch["arguments"]]
                driver.launch(function, launch["grid"], launch["block"], launch["shared"], arguments)

        call(0)
        driver("cuStreamSynchronize", driver.stream)
        result = known[7]
        assert result is not None
        driver.download(result, arrays[7])
        wrong = float(np.abs(arrays[7] - expected).max())
        graphs[entry["name"]] = (driver.graph(lambda call=call: [call(place) for place in range(calls)]), wrong)
    playable = {name: graph for name, (graph, _) in graphs.items()}
    times = driver.seconds_in_turn(playable, calls=calls, rounds=rounds)
    told = []
    for name, (_, wrong) in graphs.items():
        seconds = statistics.median(times[name])
        speed = 2 * batch * context * KEY_HEADS * HEAD_DIM * 2 / seconds
        told.append({"name": name, "context": context, "batch": batch, "seconds": seconds, "error": wrong})
        print(
            f"context {context:5} batch {batch}  {name:18} {seconds * 1e6:8.2f} us  {speed / 1e9:6.0f} GB/s  "
            f"({min(times[name]) * 1e6:.2f} … {max(times[name]) * 1e6:.2f})  largest error {wrong:.1e}",
            flush=True,
        )
    for place, pointer in enumerate([*known, *workspaces, table]):
        if pointer is not None and place != 1:
            driver.free(pointer)
    return told


def _argument(known: list[Any], kind: str, bits: int, value: float) -> Any:
    if kind == "handle":
        return known[int(value)]
    if kind == "float":
        return ctypes.c_float(value)
    return ctypes.c_int64(int(value)) if bits == 64 else ctypes.c_int32(int(value))


def _expected(arrays: Any, base: Any, numbers: Any, context: int) -> Any:
    """The results of a call over the pages of these numbers."""
    queries = arrays[0].astype(np.float64)
    group = QUERY_HEADS // KEY_HEADS
    result = np.empty_like(queries)
    for sequence in range(len(queries)):
        used = base[numbers[arrays[2][sequence] : arrays[2][sequence + 1]] % _BASE]
        keys, values = (
            used[:, which].transpose(0, 2, 1, 3).reshape(-1, KEY_HEADS, HEAD_DIM)[:context].astype(np.float64)
            for which in (0, 1)
        )
        for head in range(QUERY_HEADS):
            scores = keys[:, head // group] @ queries[sequence, head] * HEAD_DIM**-0.5
            weights = np.exp(scores - scores.max())
            result[sequence, head] = weights / weights.sum() @ values[:, head // group]
    return result


if __name__ == "__main__":
    command_line(str(__doc__), build, run)
