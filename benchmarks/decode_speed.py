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

With `--level x86-64-v4` (or -v3) a third process takes turns with them that does what the processor can do at most with
that level: it reads as many bytes as a token reads of the package's weights, and multiplies in registers. Then it says
which share of the read decoding is, and of the multiplications a prompt, whose operations are those of its products and
of attention.
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

_LIMITS = "limits"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--package", type=Path, required=True, help="directory of a built model_package")
    parser.add_argument("--gguf", type=Path, required=True, help="the file that the package was built from")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--prompt-tokens", type=int, default=32)
    parser.add_argument("--new-tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--peer", choices=("transformers", "llama.cpp"), default="transformers")
    parser.add_argument(
        "--level",
        choices=("x86-64-v3", "x86-64-v4"),
        help="compare a package in four bits with the processor's limits too",
    )
    parser.add_argument("--engine", choices=("mlcbuild", "transformers", "llama.cpp", _LIMITS), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.engine == _LIMITS:
        serve_limits(arguments)
    elif arguments.engine:
        serve(arguments)
    else:
        compare(arguments)


def compare(arguments: argparse.Namespace) -> None:
    """Let both engines take turns, and print what they did."""
    names = ("mlcbuild", arguments.peer)
    workers = {name: start(name) for name in (*names, *([_LIMITS] if arguments.level else []))}
    limits: list[dict[str, float]] = []
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
            if arguments.level:
                limits.append(turn(workers[_LIMITS]))
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
    if limits:
        told_limits(arguments, [told["decode"] for told in turns["mlcbuild"]], limits, "decode", "bytes", "read")
        told_limits(
            arguments, [told["prefill"] for told in turns["mlcbuild"]], limits, "prefill", "operations", "multiply"
        )


def told_limits(
    arguments: argparse.Namespace, rates: list[float], limits: list[dict[str, float]], what: str, unit: str, limit: str
) -> None:
    """Print which share of a limit the tokens of a second are."""
    a_token = work_of_a_token(arguments.package, arguments.prompt_tokens)[unit]
    shares = [rate * a_token / each[limit] for rate, each in zip(rates, limits, strict=True)]
    most, best = statistics.median(each[limit] for each in limits), max(each[limit] for each in limits)
    print(
        f"{what}: {a_token / 1e6:.1f} million {unit} a token; {arguments.threads} threads {limit} {most / 1e9:.1f} "
        f"(best {best / 1e9:.1f}) thousand million a second; share, median {statistics.median(shares):.0%} "
        f"({min(shares):.0%} to {max(shares):.0%})"
    )


def work_of_a_token(package: Path, prompt: int) -> dict[str, float]:
    """Bytes of weights that a new token reads, and operations of a token of a prompt: of attention to the tokens before
    it, half of the prompt, and of products with matrices of four bits, but for the head, which only the last needs."""
    records = [
        record
        for shard in json.loads((package / "tensor-cache.json").read_text())["records"]
        for record in shard["records"]
    ]
    has_head = any(record["name"].startswith("lm_head.") for record in records)
    size = sum(record["nbytes"] for record in records if not (has_head and "embed_tokens" in record["name"]))
    weights = sum(
        8 * record["shape"][0] * record["shape"][1]
        for record in records
        if record["name"].endswith(".q_weight") and ".layers." in record["name"]
    )
    config = json.loads((package / "mlc-chat-config.json").read_text())["model_config"]
    heads = config["num_attention_heads"] * config["head_dim"] * config["num_hidden_layers"]
    return {"bytes": float(size), "operations": 2.0 * weights + 4.0 * heads * prompt / 2}


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


def serve_limits(arguments: argparse.Namespace) -> None:
    """For each line of standard input, what the processor can do at most."""
    from benchmarks.processor_limits import Limits
    from mlcbuild.runtime.threads import set_threads

    set_threads(arguments.threads)
    size = work_of_a_token(arguments.package, arguments.prompt_tokens)["bytes"]
    limits = Limits(arguments.level, int(size))
    print("ready", flush=True)
    for _ in sys.stdin:
        print(json.dumps({"prompt": [], "read": limits.read(), "multiply": limits.multiply()}), flush=True)


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
