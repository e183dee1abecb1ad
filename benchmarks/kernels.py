"""How fast the kernels of one decoding step are, alone and together.

    python -m benchmarks.kernels products [--threads N]
    python -m benchmarks.kernels decode [--threads N] [--rounds N] [--quantization NAME]

`products` times each packed product of SmolLM2-135M's decoding step against the schedule that TVM's own rules give, in
turn, on matrices that have been out of the cache since they were last used, and tells how near it comes to the speed
at which the same threads read memory. `decode` builds the whole library with random weights and times decoding against
transformers in float32 with the same shapes, in turn: 128 tokens after a prompt of 32.
Ratios are of medians; the spread is that of the rounds' own ratios.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "num_hidden_layers": 30,
    "vocab_size": 49152,
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-5,
    "rope_theta": 100000.0,
    "tie_word_embeddings": True,
    "hidden_act": "silu",
}
PRODUCTS = {"qkv": (960, 576), "o": (576, 576), "gate_up": (3072, 576), "down": (576, 1536), "head": (49152, 576)}
PROMPT, NEW_TOKENS = 32, 128
_CACHE_BYTES = 128 << 20  # more than any cache: so much is read between two uses of a matrix


def products(threads: int, rounds: int) -> None:
    import tvm
    from tvm.s_tir import dlight

    from mlcbuild.compiler.kernels.cpu.gemv import schedule_gemv
    from tests.compiler.kernel_running import TARGET, compiled, packed_arrays, packed_product

    bound = _read_speed(threads)
    print(f"{threads} threads read memory at {bound:.1f} GB/s")
    for name, (n, k) in PRODUCTS.items():
        func = packed_product(n, k, 1)
        module = tvm.IRModule({"main": func.with_attr("global_symbol", "main")})
        with TARGET:
            default = dlight.ApplyDefaultSchedule(dlight.cpu.GEMV())(module)["main"]
        made = schedule_gemv(func, TARGET)
        assert made is not None
        arrays = packed_arrays(n, k, 1, dtype="float32", bits=4, group=32)
        size = sum(array.nbytes for array in arrays)
        copies = max(2, _CACHE_BYTES // size)
        calls = [[*map(tvm.runtime.tensor, [*arrays, np.zeros((1, 1, n), np.float32)])] for _ in range(copies)]
        ours, theirs = compiled(made), compiled(default)
        pairs = [
            (_seconds_a_call(ours, calls), _seconds_a_call(theirs, calls[: max(2, copies // 16)]))
            for _ in range(rounds)
        ]
        seconds = statistics.median(pair[0] for pair in pairs)
        print(
            f"{name:8} {n:6} x {k:5}  {seconds * 1e6:8.1f} us  {seconds / n / k * 1e12:6.1f} ps/weight  "
            f"{size / seconds / 1e9:5.1f} GB/s ({size / seconds / 1e9 / bound:4.0%} of memory)  TVM's rules: {_ratio(pairs)}",
            flush=True,
        )


def _seconds_a_call(kernel: Any, calls: list[list[Any]]) -> float:
    begin = time.perf_counter()
    for tensors in calls:
        kernel(*tensors)
    return (time.perf_counter() - begin) / len(calls)


def _read_speed(threads: int) -> float:
    """GB/s at which `threads` threads together sum what no cache holds."""
    from concurrent.futures import ThreadPoolExecutor

    parts = [np.ones(_CACHE_BYTES // 8, np.float64) for _ in range(threads)]
    best = float("inf")
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(5):
            begin = time.perf_counter()
            list(pool.map(np.sum, parts))
            best = min(best, time.perf_counter() - begin)
    return threads * _CACHE_BYTES / best / 1e9


def decode(threads: int, rounds: int, quantization: str) -> None:
    theirs = _transformers(threads)
    ours = _library(quantization)
    ours(), theirs()
    pairs = []
    for number in range(rounds):
        pairs.append((ours(), theirs()))
        print(f"round {number}: {1 / pairs[-1][0]:6.1f} and {1 / pairs[-1][1]:6.1f} tokens/s", flush=True)
    speeds = [1 / statistics.median(pair[side] for pair in pairs) for side in (0, 1)]
    print(f"{quantization}: {speeds[0]:.1f} tokens/s, transformers float32: {speeds[1]:.1f} tokens/s, {_ratio(pairs)}")


def _ratio(pairs: list[tuple[float, float]]) -> str:
    """How many times as long the second takes."""
    ratios = [theirs / ours for ours, theirs in pairs]
    middle = statistics.median(theirs for _, theirs in pairs) / statistics.median(ours for ours, _ in pairs)
    return f"{middle:.1f} times as fast ({min(ratios):.1f} … {max(ratios):.1f})"


def _transformers(threads: int) -> Callable[[], float]:
    """A function that decodes once, and tells the seconds a token."""
    import torch
    import transformers

    torch.set_num_threads(threads)
    kind = transformers.AutoConfig.for_model(**CONFIG)
    model = transformers.AutoModelForCausalLM.from_config(kind, dtype=torch.float32).eval()
    prompt = torch.arange(PROMPT)[None]

    @torch.inference_mode()
    def run() -> float:
        result = model(prompt, use_cache=True)
        begin = time.perf_counter()
        for _ in range(NEW_TOKENS):
            token = result.logits[:, -1].argmax(dim=-1, keepdim=True)
            result = model(token, past_key_values=result.past_key_values, use_cache=True)
        return (time.perf_counter() - begin) / NEW_TOKENS

    return run


def _library(quantization: str) -> Callable[[], float]:
    """A function that decodes once with a library of random weights, and tells the seconds a token."""
    import tvm
    import tvm_ffi
    from tvm import relax

    from tests.compiler.pipeline import CPU_TARGET, compile_library

    with tempfile.TemporaryDirectory() as directory:
        path = compile_library(CONFIG, quantization, CPU_TARGET, Path(directory))
        machine = relax.VirtualMachine(tvm.runtime.load_module(str(path)), tvm.cpu())
    random = np.random.default_rng(0)
    parameters = []
    for item in json.loads(str(machine["_metadata"]()))["params"]:
        shape = [int(extent) for extent in item["shape"]]
        if item["dtype"] == "uint32":
            array = random.integers(0, 2**32, shape, dtype=np.uint32)
        else:
            array = (random.random(shape, dtype=np.float32) * 0.02).astype(item["dtype"])
        parameters.append(tvm.runtime.tensor(array))
    weights = tvm_ffi.convert(parameters)

    def shape_of(*sizes: int) -> Any:
        return tvm_ffi.Shape(list(sizes))

    begin_forward = tvm_ffi.get_global_func("vm.builtin.kv_state_begin_forward")
    end_forward = tvm_ffi.get_global_func("vm.builtin.kv_state_end_forward")
    add = tvm_ffi.get_global_func("vm.builtin.kv_state_add_sequence")

    def forward(entry: Any, cache: Any, tokens: list[int]) -> int:
        embedded = machine["embed"](tvm.runtime.tensor(np.array(tokens, np.int32)), weights)
        begin_forward(cache, shape_of(0), shape_of(len(tokens)))
        logits, _ = entry(embedded._create_view((1, *embedded.shape)), cache, weights)
        end_forward(cache)
        return int(np.argmax(logits.numpy()))

    def run() -> float:
        sizes = (1, PROMPT + NEW_TOKENS, PROMPT, 16, 0)
        cache = machine["create_paged_kv_cache"](*(shape_of(size) for size in sizes))
        add(cache, 0)
        token = forward(machine["prefill"], cache, list(range(PROMPT)))
        decode_entry = machine["decode"]
        begin = time.perf_counter()
        for _ in range(NEW_TOKENS):
            token = forward(decode_entry, cache, [token])
        return (time.perf_counter() - begin) / NEW_TOKENS

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description="Times kernels of a decoding step.")
    parser.add_argument("what", choices=["products", "decode"])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quantization", default="q4f32_1")
    given = parser.parse_args()
    os.environ["TVM_NUM_THREADS"] = str(given.threads)
    os.environ.setdefault("TVM_BIND_THREADS", "0")
    if given.what == "products":
        products(given.threads, given.rounds)
    else:
        decode(given.threads, given.rounds, given.quantization)


if __name__ == "__main__":
    main()
