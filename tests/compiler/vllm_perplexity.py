"""The perplexity of a checkpoint by vLLM, in windows that do not overlap, whose first tokens are not scored.

    python vllm_perplexity.py CHECKPOINT TEXT WINDOW

It runs in an environment that has vLLM, and imports nothing of mlcbuild. The figure is in a line of its own, among
vLLM's own, which its processes go on to write until they end.
"""

from __future__ import annotations

import importlib
import math
import os
import sys
from pathlib import Path


def main() -> None:
    os.environ |= {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"}
    checkpoint, text, window = sys.argv[1], Path(sys.argv[2]).read_text(encoding="utf-8"), int(sys.argv[3])
    vllm, inputs = importlib.import_module("vllm"), importlib.import_module("vllm.inputs")
    model = vllm.LLM(model=checkpoint, max_model_len=2 * window, enforce_eager=True, max_num_seqs=1)
    tokens = model.get_tokenizer()(text, add_special_tokens=False)["input_ids"]
    pieces = [tokens[begin : begin + window] for begin in range(0, len(tokens) - 1, window)]
    asked = [inputs.TokensPrompt(prompt_token_ids=piece) for piece in pieces]
    answers = model.generate(asked, vllm.SamplingParams(max_tokens=1, temperature=0, prompt_logprobs=0))
    likelihoods = [
        found[token].logprob
        for piece, answer in zip(pieces, answers, strict=True)
        for token, found in zip(piece[1:], answer.prompt_logprobs[1:], strict=True)
    ]
    print(f"\nperplexity {math.exp(-sum(likelihoods) / len(likelihoods))}", flush=True)


if __name__ == "__main__":
    main()
