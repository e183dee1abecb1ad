"""How fast kernels of a decoding step are on a GPU, several schedules of each in turn.

    python -m benchmarks.gpu_kernels build DIRECTORY [--only NAME]    needs mlcbuild and no GPU
    python -m benchmarks.gpu_kernels run DIRECTORY [--rounds N]       needs a GPU, its driver and NumPy

`build` compiles every candidate to a cubin, and writes its launch. `run` compares the candidate's numbers with NumPy
on some rows, then records a CUDA graph of many calls on matrices that are no longer in the GPU's cache. It plays the
graphs of all candidates in turn, and prints the median time of a call, how many bytes of the matrix it reads a
second, and their share of the speed of a kernel that only reads.
"""

from __future__ import annotations

import ctypes
import json
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

try:
    from benchmarks.gpu_driver import Driver, command_line
except ImportError:  # run as a file, where nothing of mlcbuild is
    from gpu_driver import Driver, command_line  # type: ignore[import-not-found,no-redef]

# Llama-3-8B's, and the largest of Llama-2-70B's.
PRODUCTS = {
    "qkv": (6144, 4096),
    "o": (4096, 4096),
    "gate_up": (28672, 4096),
    "down": (4096, 14336),
    "head": (128256, 4096),
    "gate_up_70b": (57344, 8192),
}
_COLD_BYTES = 256 << 20  # more than any cache: so much is read between two uses of a matrix
_READ_BYTES = 1 << 30
_READER = """
extern "C" __global__ void read_all(const uint4* __restrict__ from, unsigned* to, long count) {
  unsigned sum = 0;
  long step = (long)gridDim.x * blockDim.x;
  for (long i = (long)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += 4 * step) {
    uint4 part[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) part[j] = i + j * step < count ? from[i + j * step] : make_uint4(0, 0, 0, 0);
#pragma unroll
    for (int j = 0; j < 4; ++j) sum ^= part[j].x ^ part[j].y ^ part[j].z ^ part[j].w;
  }
  if (sum == 0x12345678u) *to = sum;
}
"""


def build(directory: Path, only: str, arch: str) -> None:
    from mlcbuild.compiler.backends.cuda import nvrtc, source
    from mlcbuild.compiler.backends.cuda.stages.compile_device import OPTIONS
    from tests.compiler.backends.cuda.cuda_emulation import launches
    from tests.compiler.kernel_running import packed_product

    directory.mkdir(parents=True, exist_ok=True)
    (directory / "read_all.cubin").write_bytes(nvrtc.compile_text(_READER, arch, OPTIONS))
    entries = []
    for product, (n, k) in PRODUCTS.items():
        func = packed_product(n, k, 1, dtype="float16", out_dtype="float32")
        arrays = _arrays(n, k)
        for candidate, scheduled in _candidates(func):
            name = f"{product}-{candidate}"
            if only not in name:
                continue
            text, started = launches(scheduled, arrays)
            (launch,) = started
            (directory / f"{name}.cubin").write_bytes(nvrtc.compile_text(source.lean(text), arch, OPTIONS))
            entries.append(
                {
                    "name": name,
                    "product": product,
                    "function": launch.function,
                    "grid": launch.grid,
                    "block": launch.block,
                    "shared": launch.shared,
                    "arguments": [place for _, _, place in launch.arguments],
                }
            )
            print(name, launch.grid, launch.block, flush=True)
    (directory / "candidates.json").write_text(json.dumps(entries, indent=1))


def _candidates(func: Any) -> Iterator[tuple[str, Any]]:
    import tvm

    from mlcbuild.compiler.backends.cuda.kernels import few_vectors, gemv, instructions, library
    from mlcbuild.compiler.kernels.building import replace_body, statement
    from mlcbuild.compiler.kernels.matmul_pattern import match_matrix_product
    from tests.compiler.backends.cuda.cuda_emulation import CUDA_TARGET

    target = tvm.target.Target(CUDA_TARGET)
    with target:
        yield "tvm", library.schedule_gemv(func, target)
    yield "chosen", gemv.schedule_packed_gemv(func, target)
    product = match_matrix_product(func)
    assert product is not None
    for warps, tiles, ahead in [
        (8, 1, 1),
        (8, 1, 2),
        (4, 1, 2),
        (4, 1, 4),
        (8, 2, 1),
        (4, 2, 2),
        (8, 4, 1),
        (16, 1, 1),
    ]:
        shape = gemv.GemvShape(warps=warps, tiles=tiles, ahead=ahead)
        body = statement(lambda shape=shape: gemv.multiply_one(product, shape))  # type: ignore[misc]
        yield f"w{warps}t{tiles}a{ahead}", replace_body(product.func, body)
    yield (
        "few",
        replace_body(product.func, statement(lambda: few_vectors.multiply_few(product, few_vectors.FewShape()))),
    )
    original = instructions.load_once
    instructions.load_once = instructions.load16  # through the first cache
    try:
        shape = gemv.GemvShape(warps=8, tiles=1, ahead=2)
        yield "w8t1a2-cached", replace_body(product.func, statement(lambda: gemv.multiply_one(product, shape)))
    finally:
        instructions.load_once = original


def _arrays(n: int, k: int) -> list[np.ndarray[Any, Any]]:
    """x, words, scales and the result, without contents: their addresses tell them apart."""
    return [
        np.empty((1, 1, k), np.float16),
        np.empty((n, k // 8), np.uint32),
        np.empty((n, k // 32), np.float16),
        np.empty((1, 1, n), np.float32),
    ]


def run(directory: Path, only: str, rounds: int) -> None:
    driver = Driver()
    bound = _read_speed(driver, directory)
    print(f"{driver.name}: a kernel that only reads gets {bound / 1e9:.0f} GB/s")
    entries = [entry for entry in json.loads((directory / "candidates.json").read_text()) if only in entry["name"]]
    results = []
    for product, (n, k) in PRODUCTS.items():
        mine = [entry for entry in entries if entry["product"] == product]
        if mine:
            results += _measure(driver, directory, mine, n, k, bound, rounds)
    (directory / "results.json").write_text(json.dumps({"device": driver.name, "read": bound, "results": results}))


def _measure(
    driver: Driver, directory: Path, entries: list[Any], n: int, k: int, bound: float, rounds: int
) -> list[dict[str, Any]]:
    random = np.random.default_rng(0)
    x, words, scales, result = _arrays(n, k)
    x[:] = random.standard_normal(x.shape)
    words[:] = random.integers(0, 2**32, words.shape, dtype=np.uint32)
    scales[:] = random.random(scales.shape) / 8
    size = words.nbytes + scales.nbytes
    copies = max(2, -(-_COLD_BYTES // size))
    count = copies * max(1, 64 // copies)
    shared_x, out = driver.upload(x), driver.allocate(result.nbytes)
    matrices = [(driver.upload(words), driver.upload(scales)) for _ in range(copies)]
    expected = _expected(x, words, scales)
    graphs = {}
    for entry in entries:
        function = driver.function(directory / f"{entry['name']}.cubin", entry["function"], entry["shared"])

        def launch(number: int, entry: Any = entry, function: Any = function) -> None:
            known = [shared_x, *matrices[number % copies], out]
            arguments = [known[place] for place in entry["arguments"]]
            driver.launch(function, entry["grid"], entry["block"], entry["shared"], arguments)

        launch(0)
        driver("cuStreamSynchronize", driver.stream)
        driver.download(out, result)
        wrong = max(float(np.abs(result[0, 0, rows] - values).max()) for rows, values in expected)
        graphs[entry["name"]] = (driver.graph(lambda launch=launch: [launch(i) for i in range(count)]), wrong)
    playable = {name: graph for name, (graph, _) in graphs.items()}
    times = driver.seconds_in_turn(playable, calls=count, rounds=rounds)
    told = []
    for name, (_, wrong) in graphs.items():
        seconds = statistics.median(times[name])
        speed = size / seconds
        told.append({"name": name, "seconds": seconds, "speed": speed, "error": wrong})
        print(
            f"{name:28} {seconds * 1e6:8.2f} us  {speed / 1e9:6.0f} GB/s  {speed / bound:4.0%} of reading  "
            f"({min(times[name]) * 1e6:.2f} … {max(times[name]) * 1e6:.2f})  largest error {wrong:.1e}",
            flush=True,
        )
    for pointer in [shared_x, out, *(part for matrix in matrices for part in matrix)]:
        driver.free(pointer)
    return told


def _expected(x: Any, words: Any, scales: Any) -> list[tuple[slice, Any]]:
    """The products of the first and the last rows."""
    told = []
    for rows in (slice(0, 64), slice(len(words) - 64, len(words))):
        shifts = 4 * np.arange(8, dtype=np.uint32)
        integers = ((words[rows, :, None] >> shifts) & 15).reshape(64, -1).astype(np.float64) - 7
        matrix = integers * np.repeat(scales[rows].astype(np.float64), 32, axis=1)
        told.append((rows, matrix @ x[0, 0].astype(np.float64)))
    return told


def _read_speed(driver: Driver, directory: Path) -> float:
    function = driver.function(directory / "read_all.cubin", "read_all", 0)
    memory, out, count = driver.allocate(_READ_BYTES), driver.allocate(4), ctypes.c_int64(_READ_BYTES // 16)
    driver("cuMemsetD8_v2", memory, ctypes.c_ubyte(1), ctypes.c_size_t(_READ_BYTES))
    playable = driver.graph(lambda: driver.launch(function, (1056, 1, 1), (512, 1, 1), 0, [memory, out, count]))
    seconds = min(driver.seconds(playable) for _ in range(10))
    driver.free(memory)
    return _READ_BYTES / seconds


if __name__ == "__main__":
    command_line(str(__doc__), build, run)
