"""A library on a GPU says what transformers says with the same weights. To be run where there is a GPU and torch:

    python -m tests.gpu.parity --config CONFIG.json --quantization NAME LIBRARY…

Random weights are quantized by mlcbuild's own code, restored, and given to transformers' model in float32 on the same
GPU. Compared are the logits after prompts of several lengths, each prefilled at once; after each of several tokens that
are decoded behind a prompt; after a text in pieces of several sizes, the smallest of which is one token. If the model
has a sliding window, the text is longer than two of them, and a prompt may be: build the library with an override of
prefill_chunk_size to have it prefilled at once. The bound is three times the largest error of transformers' own model
in the library's dtype against itself in float32: what this model loses to that dtype at all.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mlcbuild.compiler.models.architecture.window import SlidingWindow
from mlcbuild.compiler.quantization.scheme import QuantizationScheme
from mlcbuild.runtime.expected_tensor import ExpectedTensor
from mlcbuild.runtime.model import Model
from tests.compiler import schemes
from tests.compiler.resolving import parameters_of
from tests.compiler.sink_reference import attention_with

PROMPT_TOKENS = 45  # without a window
DECODED_TOKENS = 12
PIECES = (1, 4, 9, 16, 32)
ALLOWED = 3.0


class Weights:
    """Random weights of a model: `stored` as the library takes them, `restored` as transformers does."""

    def __init__(self, document: dict[str, Any], scheme: QuantizationScheme, *, seed: int) -> None:
        random = np.random.default_rng(seed)
        tensors: dict[str, Any] = {}
        for parameter in parameters_of(document).parameters:
            numbers = [random.standard_normal(tensor.shape, np.float32) for tensor in parameter.sources]
            for tensor, array in zip(parameter.sources, numbers, strict=True):
                vector = len(tensor.shape) == 1
                tensors[tensor.name] = 1 + 0.1 * array if vector else array * np.float32(tensor.shape[-1] ** -0.5)
        self.stored = schemes.stored(document, scheme, tensors)
        self.restored = schemes.restored(document, scheme, self.stored)

    def of(self, wanted: Sequence[ExpectedTensor]) -> Iterable[Any]:
        return (self.stored[tensor.name] for tensor in wanted)


class Peer:
    """transformers' model with the restored weights."""

    def __init__(
        self, document: dict[str, Any], weights: Weights, dtype: str, device: str, window: SlidingWindow | None
    ) -> None:
        import torch
        import transformers

        fields = {"sliding_window": None if window is None else window.size} if "sliding_window" in document else {}
        config = transformers.AutoConfig.for_model(**{**document, **fields})
        self._theta = float(config.rope_parameters["rope_theta"])
        wanted = getattr(torch, dtype)
        self._device, self._window = device, window or SlidingWindow(size=1)
        with torch.device(device):
            self.model: Any = transformers.AutoModelForCausalLM.from_config(
                config, dtype=wanted, attn_implementation="eager"
            ).eval()
        state = {name: torch.from_numpy(numbers).to(wanted) for name, numbers in weights.restored.items()}
        missing, unexpected = self.model.load_state_dict(state, strict=False)
        assert not unexpected, unexpected
        assert set(missing) <= {"lm_head.weight"}, missing

    def logits(self, tokens: Sequence[int]) -> Any:
        """After each token, (n, vocabulary), in float32."""
        import torch

        with torch.inference_mode(), attention_with(self._window, theta=self._theta):
            found = self.model(torch.tensor([list(tokens)], device=self._device)).logits[0]
        return found.float().cpu().numpy()


class Comparison:
    """A library's logits and those of transformers, for one text: the largest error of each way to go through it."""

    def __init__(self, model: Model, tokens: list[int], exact: Any) -> None:
        self.model, self.tokens, self.exact = model, tokens, exact
        self.errors: dict[str, float] = {}
        self.choices: list[bool] = []

    def add(self, way: str, counts: Iterable[int]) -> None:
        """Goes through the text in pieces of the given sizes, and compares after each."""
        self.model.reset(capacity=len(self.tokens))
        errors, end = [], 0
        for count in counts:
            piece = self.tokens[end : end + count]
            end += len(piece)
            found = self.model.decode(piece[0]) if len(piece) == 1 else self.model.prefill(piece)
            wanted = self.exact[end - 1]
            errors.append(float(np.abs(found - wanted).max()))
            self.choices.append(bool(np.argmax(found) == np.argmax(wanted)))
        self.errors[way] = max(errors)


def check(library: Path, document: dict[str, Any], quantization: str, *, seed: int, device: str) -> dict[str, float]:
    """Compare one library; answers errors and bounds. Raises AssertionError for logits out of bounds."""
    scheme = schemes.scheme(quantization)
    weights = Weights(document, scheme, seed=seed)
    model = Model(library, weights.of)
    size, sink = model.sliding_window_size, model.attention_sink_size
    window = SlidingWindow(size=size, sink=sink) if size > 0 else None
    prompts = [PROMPT_TOKENS] if window is None else [size - 1, size, size + 1, size + 8, 2 * size + 13]
    total = max(prompts) + DECODED_TOKENS
    tokens = [int(token) for token in np.random.default_rng(seed).integers(0, document["vocab_size"], total)]
    exact = Peer(document, weights, "float32", device, window).logits(tokens)
    same_dtype = Peer(document, weights, scheme.model_dtype, device, window).logits(tokens)
    bound = ALLOWED * float(np.abs(same_dtype - exact).max()) + 1e-3
    comparison = Comparison(model, tokens, exact)
    for prompt in prompts:
        comparison.add(f"prefill_of_{prompt}", [prompt])
    first = PROMPT_TOKENS if window is None else size - DECODED_TOKENS // 2
    comparison.add(f"prefill_of_{first}_then_decode", [first] + [1] * DECODED_TOKENS)
    comparison.add(f"prefill_of_{prompts[-1]}_then_decode", [prompts[-1]] + [1] * DECODED_TOKENS)
    for piece in PIECES:
        comparison.add(f"pieces_of_{piece}", [piece] * (total // piece))
    told = {
        "bound": bound,
        **comparison.errors,
        "largest_logit": float(np.abs(exact).max()),
        "same_choice": float(np.mean(comparison.choices)),
    }
    assert max(comparison.errors.values()) <= bound, told
    return told


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("libraries", nargs="+", type=Path)
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--quantization", required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda", help="where transformers computes: cuda, or cpu")
    arguments = parser.parse_args()
    document = json.loads(arguments.config.read_text())
    failed = False
    for library in arguments.libraries:
        try:
            told: object = check(
                library, document, arguments.quantization, seed=arguments.seed, device=arguments.device
            )
        except AssertionError as error:
            told, failed = f"OUT OF BOUNDS: {error}", True
        print(library, json.dumps(told))
    raise SystemExit(failed)


if __name__ == "__main__":
    main()
