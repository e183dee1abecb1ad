"""A library on a GPU says what transformers says with the same weights. To be run where there is a GPU and torch:

    python -m tests.gpu.parity --config CONFIG.json --quantization NAME LIBRARY…

Random weights are quantized by mlcbuild's own code, restored, and given to transformers' model in float32 on the same
GPU. Compared are the logits after a prefill, after each of several decoded tokens, and after a prefill in pieces. The
bound is three times the largest error of transformers' own model in the library's dtype against itself in float32: what
this model loses to that dtype at all.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mlcbuild.compiler.quantization.scheme import QuantizationScheme
from mlcbuild.runtime.expected_tensor import ExpectedTensor
from mlcbuild.runtime.model import Model
from tests.compiler import schemes
from tests.compiler.resolving import parameters_of

PROMPT_TOKENS = 45
DECODED_TOKENS = 12
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

    def __init__(self, document: dict[str, Any], weights: Weights, dtype: str, device: str) -> None:
        import torch
        import transformers

        config = transformers.AutoConfig.for_model(**document)
        wanted = getattr(torch, dtype)
        self._device = device
        with torch.device(device):
            self.model: Any = transformers.AutoModelForCausalLM.from_config(config, dtype=wanted).eval()
        state = {name: torch.from_numpy(numbers).to(wanted) for name, numbers in weights.restored.items()}
        missing, unexpected = self.model.load_state_dict(state, strict=False)
        assert not unexpected, unexpected
        assert set(missing) <= {"lm_head.weight"}, missing

    def logits(self, tokens: Sequence[int]) -> Any:
        """After each token, (n, vocabulary), in float32."""
        import torch

        with torch.inference_mode():
            found = self.model(torch.tensor([list(tokens)], device=self._device)).logits[0]
        return found.float().cpu().numpy()


def check(library: Path, document: dict[str, Any], quantization: str, *, seed: int, device: str) -> dict[str, float]:
    """Compare one library; answers errors and bounds. Raises AssertionError for logits out of bounds."""
    scheme = schemes.scheme(quantization)
    weights = Weights(document, scheme, seed=seed)
    tokens = [int(token) for token in np.random.default_rng(seed).integers(0, document["vocab_size"], 64)]
    prompt, rest = tokens[:PROMPT_TOKENS], tokens[PROMPT_TOKENS : PROMPT_TOKENS + DECODED_TOKENS]
    whole = [*prompt, *rest]
    exact = Peer(document, weights, "float32", device).logits(whole)
    same_dtype = Peer(document, weights, scheme.model_dtype, device).logits(whole)
    bound = ALLOWED * float(np.abs(same_dtype - exact).max()) + 1e-3
    model = Model(library, weights.of)
    model.reset(capacity=128)
    found = [model.prefill(prompt), *(model.decode(token) for token in rest)]
    wanted = exact[len(prompt) - 1 :]
    errors = [float(np.abs(row - other).max()) for row, other in zip(found, wanted, strict=True)]
    model.reset(capacity=128)
    for begin in range(0, len(prompt), 16):
        pieces = model.prefill(prompt[begin : begin + 16])
    told = {
        "bound": bound,
        "prefill_error": errors[0],
        "decode_error": max(errors[1:]),
        "pieces_error": float(np.abs(pieces - wanted[0]).max()),
        "largest_logit": float(np.abs(exact).max()),
        "same_choice": float(np.mean(np.argmax(found, axis=1) == np.argmax(wanted, axis=1))),
    }
    assert max(told["prefill_error"], told["decode_error"], told["pieces_error"]) <= bound, told
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
