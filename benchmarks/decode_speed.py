"""How fast a built package reads a prompt and decodes, against another engine on the same GGUF file: transformers in
float32, or llama.cpp with the numbers as they are stored (`--peer llama.cpp`; the wheel of locks/parity.txt).

    python -m benchmarks.decode_speed --package mlcbuild-out/…/smollm2-135m-cpu --gguf SmolLM2-135M-Instruct.Q4_1.gguf

Method. Each engine runs in its own process with the same number of threads, and loads once. Then they take turns, so
that both meet the same noise of the machine; the other one sleeps. A turn prefills a prompt of 32 tokens (the same ids
for both), then decodes 128 tokens greedily at batch 1. The first token belongs to the prefill; the other 127 are timed.
transformers runs in a plain loop over its forward pass with its cache, which is faster than its `generate`. The
machine must be quiet: torch's threads wait for each other in a busy loop, so another process slows transformers several
times as much as mlcbuild. The first turn of each engine is dropped. It prints tokens per second of every turn, the
median of each engine, and the median, least and greatest ratio of paired turns, for both.
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
import statistics
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--package", type=Path, required=True, help="directory of a built model_package")
    parser.add_argument("--gguf", type=Path, required=True, help="the file that the package was built from")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--prompt-tokens", type=int, default=32)
    parser.add_argument("--new-tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--peer", choices=("transformers", "llama.cpp"), default="transformers")
    parser.add_argument("--engine", choices=("mlcbuild", "transformers", "llama.cpp"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.engine:
        serve(arguments)
    else:
        compare(arguments)


def compare(arguments: argparse.Namespace) -> None:
    """Let both engines take turns, and print what they did."""
    names = ("mlcbuild", arguments.peer)
    workers = {name: start(name) for name in names}
    try:
        prompts = {name: turn(workers[name])["prompt"] for name in names}  # the turn that is thrown away
        if prompts["mlcbuild"] != prompts[arguments.peer]:
            raise SystemExit("the engines were given different prompts")
        turns: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
        for number in range(arguments.rounds):
            for name in names:
                told = turn(workers[name])
                turns[name].append(told)
                print(
                    f"turn {number + 1}  {name:12}  prefill {told['prefill']:7.1f} tokens/s"
                    f"  decode {told['decode']:6.1f} tokens/s",
                    flush=True,
                )
    finally:
        for worker in workers.values():
            worker.stdin.close()
            worker.wait()
    for what in ("prefill", "decode"):
        rates = {name: [told[what] for told in turns[name]] for name in names}
        medians = ", ".join(f"{name} {statistics.median(rates[name]):.1f}" for name in names)
        ratios = [ours / theirs for ours, theirs in zip(*rates.values(), strict=True)]
        spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
        print(f"{what}, median tokens/s: {medians}; ratio, median {statistics.median(ratios):.2f} ({spread})")


def start(engine: str) -> Any:
    """A process of this program that serves turns of one engine; ready once it has said so."""
    command = [sys.executable, "-m", "benchmarks.decode_speed", *sys.argv[1:], "--engine", engine]
    worker = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert worker.stdout is not None
    while line := worker.stdout.readline():
        if line.strip() == "ready":
            return worker
    raise SystemExit(f"{engine} did not start")


def turn(worker: Any) -> dict[str, Any]:
    worker.stdin.write("turn\n")
    worker.stdin.flush()
    while line := worker.stdout.readline():
        if line.startswith("{"):
            told: dict[str, Any] = json.loads(line)
            return told
    raise SystemExit("an engine ended early")


def serve(arguments: argparse.Namespace) -> None:
    """Load one engine, then do a turn for each line of standard input."""
    makers = {"mlcbuild": mlcbuild_steps, "transformers": transformers_steps, "llama.cpp": llama_cpp_steps}
    steps = makers[arguments.engine](arguments)
    # Ids of ordinary words in a vocabulary of this size, the same for both.
    prompt = [(1000 + 37 * number) % 20000 for number in range(arguments.prompt_tokens)]
    print("ready", flush=True)
    for _ in sys.stdin:
        prefill, decode = steps()
        begin = time.perf_counter()
        token = prefill(prompt)
        middle = time.perf_counter()
        for _ in range(arguments.new_tokens - 1):
            token = decode(token)
        end = time.perf_counter()
        told = {
            "prompt": prompt,
            "prefill": len(prompt) / (middle - begin),
            "decode": (arguments.new_tokens - 1) / (end - middle),
        }
        print(json.dumps(told), flush=True)


def mlcbuild_steps(arguments: argparse.Namespace) -> Any:
    """A function that begins a sequence and returns what prefills and what decodes it, each to the likeliest token."""
    import numpy as np

    from mlcbuild.runtime.engine import Engine

    engine = Engine(arguments.package, threads=arguments.threads)

    def begin() -> Any:
        engine.reset(capacity=arguments.prompt_tokens + arguments.new_tokens)
        return (
            lambda tokens: int(np.argmax(engine.prefill(tokens))),
            lambda token: int(np.argmax(engine.decode(token))),
        )

    return begin


def transformers_steps(arguments: argparse.Namespace) -> Any:
    """As `mlcbuild_steps`."""
    os.environ["TQDM_DISABLE"] = "1"  # no progress bar among the figures
    import torch
    import transformers

    torch.set_num_threads(arguments.threads)
    torch.set_grad_enabled(False)
    path = arguments.gguf
    model = transformers.AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32)
    model.eval()
    # The argument's name before transformers 5.
    name = "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"

    def begin() -> Any:
        cache: Any = None

        def forward(tokens: list[int]) -> int:
            nonlocal cache
            output = model(torch.tensor([tokens]), **{name: cache}, use_cache=True, logits_to_keep=1)
            cache = output[name]
            return int(output.logits[0, -1].argmax())

        return forward, lambda token: forward([token])

    return begin


def llama_cpp_steps(arguments: argparse.Namespace) -> Any:
    """As `mlcbuild_steps`."""
    from tests.compiler.llama_cpp import LlamaCppModel

    model = LlamaCppModel(arguments.gguf)
    context = -(-(arguments.prompt_tokens + arguments.new_tokens) // 256) * 256
    stack = ExitStack()

    def begin() -> Any:
        stack.close()
        forward = stack.enter_context(model.sequence(context=context, threads=arguments.threads))
        return (
            lambda tokens: int(forward(tokens).argmax()),
            lambda token: int(forward([token]).argmax()),
        )

    return begin


if __name__ == "__main__":
    main()
