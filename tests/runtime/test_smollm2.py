"""A real model says what transformers says on the same file, token by token."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.batch_speed import measure
from mlcbuild.compiler.stages import perplexity_test
from mlcbuild.runtime.batch.result import result_line
from mlcbuild.runtime.engine import Engine
from mlcbuild.runtime.expected_tensor import ExpectedTensor
from mlcbuild.runtime.generate import generate
from mlcbuild.runtime.package import ModelPackage
from mlcbuild.runtime.tensor_cache import TensorCache
from mlcbuild.runtime.tokenizer import PackageTokenizer
from tests.compiler import schemes
from tests.runtime.batch.running import Ran, requests
from tests.runtime.tiny_package import build_package
from tests.smollm2 import smollm2_gguf

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]

PROMPTS = (
    "The capital of France is",
    "Once upon a time",
    "def fibonacci(n):",
    "The meaning of life is",
    "In 1969, humans first",
    "Water boils at",
    "1 + 1 = 2, 2 + 2 = 4, 3 + 3 =",
    "Dear Sir or Madam,",
    "The quick brown fox",
    "Python is a programming language that",
)
NEW_TOKENS = 64
TEXT = Path(__file__).parents[2] / "models" / "texts" / "alice.txt"
TIE = 1e-4  # logits closer than this are a tie, which the order of float32 sums may decide


class Peer:
    """transformers' model of the same file, in float32."""

    def __init__(self, path: Path) -> None:
        import torch
        import transformers

        torch.set_num_threads(1)
        self.model: Any = transformers.AutoModelForCausalLM.from_pretrained(
            path.parent, gguf_file=path.name, dtype=torch.float32
        ).eval()
        self.original = {name: tensor.numpy().copy() for name, tensor in self.model.state_dict().items()}

    def logits(self, tokens: Sequence[int]) -> Any:
        """After each token: (n, vocabulary)."""
        import torch

        with torch.inference_mode():
            return self.model(torch.tensor([list(tokens)])).logits[0].numpy()


@pytest.fixture(scope="module")
def peer() -> Peer:
    return Peer(smollm2_gguf())


@pytest.fixture(scope="module", params=["q0f32", "q4f32_1"])
def package(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, kernel_store: Path) -> Path:
    directory = tmp_path_factory.mktemp(request.param)
    return build_package(smollm2_gguf(), directory, quantization=request.param, kernel_store=kernel_store)


def weights_of(package: Path, document: dict[str, Any]) -> dict[str, Any]:
    """The matrices of a package as Hugging Face names them, restored where they are quantized."""
    scheme = schemes.scheme(json.loads((package / "mlc-chat-config.json").read_text())["quantization"])
    index = json.loads((package / "tensor-cache.json").read_text())
    entries = [entry for record in index["records"] for entry in record["records"]]
    wanted = [ExpectedTensor.of(entry) for entry in entries]
    stored = dict(zip([item.name for item in wanted], TensorCache(package).read(wanted), strict=True))
    return schemes.restored(document, scheme, stored)


def test_greedy_tokens_are_those_of_transformers_with_the_same_weights(package: Path, peer: Peer) -> None:
    import torch

    document = peer.model.config.to_dict()
    document.pop("quantization_config")  # transformers notes there that the file was GGUF; its numbers are restored
    weights = weights_of(package, document)
    if package.parent.name.startswith("q0f32"):  # nothing is lost, so these are the file's own weights
        for name, numbers in weights.items():
            np.testing.assert_array_equal(numbers, peer.original[name], err_msg=name)
    missing, unexpected = peer.model.load_state_dict(
        {name: torch.from_numpy(numbers.copy()) for name, numbers in weights.items()}, strict=False
    )
    assert (missing, unexpected) == (["lm_head.weight"], [])
    engine = Engine(package, threads=1)
    tokenizer = PackageTokenizer(engine.package)
    for prompt in PROMPTS:
        ids = tokenizer.encode_raw(prompt)
        found = engine.greedy_tokens(ids, NEW_TOKENS)
        # One pass over our own answer gives what transformers would choose after each of its beginnings.
        logits = peer.logits([*ids, *found])[len(ids) - 1 : -1]
        for number, (token, row) in enumerate(zip(found, logits, strict=True)):
            best = int(row.argmax())
            assert token == best or row[best] - row[token] < TIE, f"{prompt!r}, new token {number}"


@pytest.mark.parametrize(("window", "stride"), [(128, 128), (96, 32)])
def test_the_perplexity_of_a_text_is_that_of_transformers(
    package: Path, peer: Peer, tmp_path: Path, window: int, stride: int
) -> None:
    import torch

    if not package.parent.name.startswith("q0f32"):
        pytest.skip("its weights are not those of the file")
    text = tmp_path / "text.txt"
    text.write_bytes(TEXT.read_bytes()[:2000])
    result = tmp_path / "test.json"
    perplexity_test.run(
        package=package, text=text, result=result, max_perplexity=0, window=window, stride=stride, max_tokens=0
    )
    figures = json.loads(result.read_text())["figures"]
    tokens = PackageTokenizer(ModelPackage.open(package)).encode_raw(text.read_text())
    # The loop of transformers' page on perplexity, with the sum of the losses in float64.
    total, scored, before = 0.0, 0, 0
    for begin in range(0, len(tokens), stride):
        end = min(begin + window, len(tokens))
        losses = torch.nn.functional.cross_entropy(
            torch.from_numpy(peer.logits(tokens[begin:end])[:-1]).double(),
            torch.tensor(tokens[begin + 1 : end]),
            reduction="none",
        )[-(end - before) :]
        total, scored, before = total + float(losses.sum()), scored + len(losses), end
        if end == len(tokens):
            break
    assert (figures["tokens"], figures["scored"]) == (len(tokens), scored)
    assert figures["perplexity"] == pytest.approx(float(np.exp(total / scored)), rel=1e-4)
    assert 5 < figures["perplexity"] < 40


def test_the_capital_of_france(package: Path) -> None:
    # By two threads, which the other tests leave out: on a busy machine these wait for each other at every kernel.
    generation = generate(package, "What is the capital of France?", max_tokens=32, threads=2)
    assert "".join(generation) == "The capital of France is Paris."
    assert generation.statistics.prompt_tokens == 37


def test_prompts_in_a_batch_have_the_logits_of_each_alone(package: Path) -> None:
    measured = measure(package, prompts=8, longest=24, new_tokens=2, threads=1)
    assert measured.largest_difference <= measured.bound


def test_results_of_a_batch_are_equal_to_the_bit_whatever_its_size(package: Path) -> None:
    engine = Engine(package, threads=1)
    alone, together = (Ran(engine, requests()[:4], size=size) for size in (1, 4))
    assert [result_line(result) for result in together.results] == [result_line(result) for result in alone.results]
    for number, row in alone.logits.items():
        np.testing.assert_array_equal(together.logits[number], row, err_msg=str(number))
