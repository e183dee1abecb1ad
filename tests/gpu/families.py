"""Libraries of several families on a GPU compute what transformers computes. In two steps, the second where a GPU is:

    python -m tests.gpu.families prepare FOLDER [--quantization NAME] [--arch ARCH] [FAMILY…]
    python -m tests.gpu.families check FOLDER [FAMILY…]

`prepare` compiles a small model of each family with random weights, and writes the library, its weights, two texts and
the logits that transformers gives for them in float32 (with the numbers that the stored weights stand for). `check`
needs neither transformers nor torch. It prefills a text at once and decodes on; takes it in pieces; prefills and
decodes both texts, which are of unequal lengths, in a batch; and asks for the logits of every token of a pass. The
texts are longer than the windows of models that have them. The bound is 1e-4 of the largest logit in float32, and what
`tests.compiler.parity` derives of roundings in other dtypes.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tvm

from mlcbuild.compiler.quantization.scheme import QuantizationScheme
from mlcbuild.runtime.devices import device_of
from tests.compiler import encoders
from tests.compiler.running import Array, Library
from tests.gpu.models import ENCODERS, MODELS
from tests.gpu.saved_weights import load_weights, save_weights
from tests.gpu.steps import run_steps

# Where a model rounds, another expert may be as good as one that float32 chooses: then all are chosen.
EVERY_EXPERT: dict[str, dict[str, Any]] = {
    "mixtral": {"num_experts_per_tok": 4},
    "deepseek_v3": {"num_experts_per_tok": 8, "n_group": 1, "topk_group": 1},
}
_LENGTHS = (60, 41)
_DECODED = 6
_PIECES = (13, 1, 20, 5)


def prepare(name: str, folder: Path, *, quantization: str, arch: str) -> None:
    from tests.compiler import schemes
    from tests.compiler.parity import reference
    from tests.compiler.pipeline import CUDA_TARGET, compile_library
    from tests.compiler.running import random_model

    scheme = schemes.scheme(quantization)
    config = {"model_type": name} | MODELS[name]
    if scheme.model_dtype != "float32":
        config |= EVERY_EXPERT.get(name, {})
    model = random_model(config)
    weights = _weights(config, model, scheme)
    built = compile_library(
        config, quantization, {**CUDA_TARGET, "arch": arch}, folder / "work" / name, kernel_store=folder / "kernels"
    )
    shutil.copyfile(built, folder / f"{name}.so")
    save_weights(folder / f"{name}-weights.npz", weights)
    if name in ENCODERS:
        tokens, mask = encoders.texts(config["vocab_size"])
        expected = encoders.reference_hidden(model, tokens, mask)
        largest = float(np.abs(expected).max())
        told: dict[str, Any] = {"tokens": tokens.tolist(), "mask": mask.tolist()}
        _write(name, folder, told, [expected], allowed=allowed_difference(config, scheme, largest), largest=largest)
        return
    generator = np.random.default_rng(7)
    texts = [generator.integers(0, config["vocab_size"], length).tolist() for length in _LENGTHS]
    logits = [reference(model, text) for text in texts]
    largest = max(float(np.abs(each).max()) for each in logits)
    _write(name, folder, {"texts": texts}, logits, allowed=allowed_difference(config, scheme, largest), largest=largest)


def allowed_difference(config: Mapping[str, Any], scheme: QuantizationScheme, largest: float) -> float:
    from tests.compiler.parity import bound

    return 1e-4 * largest if scheme.model_dtype == "float32" else bound(dict(config), scheme, largest)


def _write(
    name: str, folder: Path, told: Mapping[str, Any], results: Sequence[Array], *, allowed: float, largest: float
) -> None:
    (folder / f"{name}.json").write_text(json.dumps({**told, "allowed": allowed, "largest": largest}))
    np.savez(folder / f"{name}-logits.npz", *results)


def _weights(config: Mapping[str, Any], model: Any, scheme: QuantizationScheme) -> dict[str, Array]:
    """As the scheme stores them. The model then computes with the numbers that they stand for, which in float32 are its
    own: those of checkpoints that fuse or interleave tensors cannot be put back."""
    from tests.compiler import schemes
    from tests.compiler.running import store, tensors_of

    if scheme.name != "q0f32":
        return store(model, scheme)
    return schemes.stored(config, scheme, tensors_of(model))


def check(name: str, folder: Path) -> dict[str, float]:
    """The largest error of each way to go through the texts, relative to the largest logit, and the bound."""
    told = json.loads((folder / f"{name}.json").read_text())
    if name in ENCODERS:
        return _check_encoder(name, folder, told)
    first, second = told["texts"]
    with np.load(folder / f"{name}-logits.npz") as saved:
        one, two = saved["arr_0"], saved["arr_1"]
    weights = load_weights(folder / f"{name}-weights.npz")
    library = Library.load(folder / f"{name}.so", weights, device=device_of("cuda", tvm))
    errors: dict[str, float] = {"bound": told["allowed"] / told["largest"]}

    def compared(way: str, found: Array, expected: Array) -> None:
        error = float(np.abs(found - expected).max()) / told["largest"]
        errors[way] = max(errors.get(way, 0.0), error if np.isfinite(error) else np.inf)

    begin = len(first) - _DECODED
    library.add(0)
    compared("prefill", library.prefill(0, first[:begin]), one[begin - 1])
    for place in range(begin, len(first)):
        compared("decode", library.decode(0, first[place]), one[place])
    library.add(1)
    end = 0
    for piece in _PIECES:
        end += piece
        compared("pieces", library.prefill(1, first[end - piece : end]), one[end - 1])
    # The other text beside it: its prompt and the next token of the first in one pass, then both token by token.
    library.add(2)
    prompt = len(second) - _DECODED
    mixed = library.embed([*second[:prompt], first[end]])[None]
    found = library.run("batch_prefill", [2, 1], [prompt, 1], mixed, np.array([prompt - 1, prompt], "int32"))[0]
    compared("batch_prefill", found, np.stack([two[prompt - 1], one[end]]))
    for step in range(_DECODED):
        places = end + 1 + step, prompt + step
        embedded = library.embed([first[places[0]], second[places[1]]])[:, None]
        found = library.run("batch_decode", [1, 2], [1, 1], embedded)[:, 0]
        compared("batch_decode", found, np.stack([one[places[0]], two[places[1]]]))
    library.add(3)
    found = library.run("batch_verify", [3], [len(second)], library.embed(second)[None])[0]
    compared("batch_verify", found, two)
    return errors


def _check_encoder(name: str, folder: Path, told: Mapping[str, Any]) -> dict[str, float]:
    """Texts of unequal lengths in one batch, and the first alone."""
    tokens, mask = np.array(told["tokens"], np.int32), np.array(told["mask"], np.int32)
    with np.load(folder / f"{name}-logits.npz") as saved:
        expected = saved["arr_0"]
    weights = load_weights(folder / f"{name}-weights.npz")
    library = encoders.EncoderLibrary(folder / f"{name}.so", weights, device=device_of("cuda", tvm))
    batch = np.abs(library.hidden(tokens, mask) - expected)[mask > 0].max()
    alone = np.abs(library.hidden(tokens[:1], mask[:1]) - expected[:1])[mask[:1] > 0].max()
    largest = told["largest"]
    return {"bound": told["allowed"] / largest, "batch": float(batch) / largest, "alone": float(alone) / largest}


def main() -> None:
    run_steps(
        __doc__,
        MODELS,
        prepare=lambda name, folder, asked: prepare(name, folder, quantization=asked.quantization, arch=asked.arch),
        check=check,
    )


if __name__ == "__main__":
    main()
