"""Packages of models of embeddings, from a folder to vectors: against transformers' hidden states, pooled by NumPy."""

from __future__ import annotations

import io
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mlcbuild.cli.arguments.options import GlobalOptions
from mlcbuild.cli.exit_codes import ExitCode
from mlcbuild.cli.run.generation import run_package
from mlcbuild.cli.run.generation_options import parse_generation_options
from mlcbuild.errors import UsageError
from tests.compiler.running import Array
from tests.runtime.embedding.tiny_embedder import write_decoder, write_encoder
from tests.runtime.tiny_package import build_package

pytestmark = pytest.mark.slow

TEXTS = ["hello world", "unusual texts, a text.", "", "world " * 30]


@dataclass(frozen=True, kw_only=True)
class Embedder:
    """A package, and transformers' model of the same weights with its tokens of a text."""

    package: Path
    model: Any
    tokens: Any
    strategy: str

    def expected(self, text: str) -> Array:
        import torch

        with torch.no_grad():
            hidden = self.model(torch.tensor([self.tokens(text)])).last_hidden_state[0].numpy()
        pooled = hidden.mean(axis=0) if self.strategy == "mean" else hidden[-1]
        unit: Array = pooled / np.linalg.norm(pooled)
        return unit


@pytest.fixture(scope="module", params=["encoder", "decoder"])
def embedder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, kernel_store: Path) -> Embedder:
    import transformers

    directory = tmp_path_factory.mktemp(request.param)
    source = directory / "source"
    source.mkdir()
    if request.param == "encoder":
        model = write_encoder(source)
        tokenizer = transformers.BertTokenizer(str(source / "vocab.txt"))
        strategy = "mean"
    else:
        model = write_decoder(source)
        tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(source / "tokenizer.json"))
        strategy = "last"
    package = build_package(source, directory, kernel_store=kernel_store)
    return Embedder(
        package=package,
        model=model,
        tokens=lambda text: tokenizer(text, truncation=False)["input_ids"],
        strategy=strategy,
    )


def ran(embedder: Embedder, *arguments: str) -> ExitCode:
    wanted = parse_generation_options("//:x", ["--threads", "1", *arguments])
    assert wanted is not None
    return run_package(embedder.package, wanted, GlobalOptions(environment={}, arguments=()))


def test_vectors_are_transformers_pooled_and_normalized(
    embedder: Embedder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = [text for text in TEXTS if embedder.tokens(text)][:3]
    given = [part for text in texts for part in ("--embed", text)]
    assert ran(embedder, *given, "--vectors", str(tmp_path / "x.npy")) is ExitCode.OK
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    found = np.array([line["embedding"] for line in lines], np.float32)
    np.testing.assert_allclose(found, [embedder.expected(text) for text in texts], rtol=0, atol=1e-5)
    assert (np.load(tmp_path / "x.npy") == found).all()


def test_a_batch_has_a_vector_for_each_text_whatever_is_beside_it(
    embedder: Embedder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    requests = [
        {"custom_id": "a", "input": ["hello world", "a"]},
        {"custom_id": "b", "input": "x " * 100},
        {"custom_id": "c", "input": [2, 5, 3]},
        {"custom_id": "d", "input": [299 + 1]},
    ]
    (tmp_path / "in.jsonl").write_text("\n\n".join(map(json.dumps, requests)))
    files = ["--batch", str(tmp_path / "in.jsonl"), "--output-file", str(tmp_path / "out.jsonl")]
    assert ran(embedder, *files, "--vectors", str(tmp_path / "x.npy")) is ExitCode.RUN_FAILED
    good, long, tokens, unknown = (json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines())
    vectors = [item["embedding"] for item in good["response"]["body"]["data"]]
    np.testing.assert_allclose(vectors, [embedder.expected(text) for text in ("hello world", "a")], rtol=0, atol=1e-5)
    assert (long["custom_id"], long["response"], long["error"]["line"]) == ("b", None, 3)
    assert "and the model takes" in long["error"]["message"]
    assert tokens["response"]["body"]["usage"]["prompt_tokens"] == 3
    assert "the text has token 300; tokens are 0 to" in unknown["error"]["message"]
    rows = np.load(tmp_path / "x.npy")
    assert rows.shape == (5, 64)
    assert np.isnan(rows).all(axis=1).tolist() == [False, False, True, False, True]
    assert capsys.readouterr().err.startswith("4 requests, 2 with an error · 3 vectors of ")


def test_a_long_text_is_cut_where_asked(
    embedder: Embedder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    longest = 40 if embedder.strategy == "mean" else 64
    with pytest.raises(UsageError, match=f"tokens, and the model takes {longest}"):
        ran(embedder, "--embed", "world " * 100)
    lines = json.dumps({"input": "world " * 100}).encode()
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(lines)))
    assert ran(embedder, "--batch", "-", "--truncate") is ExitCode.OK
    body = json.loads(capsys.readouterr().out)["response"]["body"]
    assert body["usage"]["total_tokens"] == longest


def test_what_is_for_models_of_text_is_refused(embedder: Embedder, tmp_path: Path) -> None:
    for arguments, message in (
        (["--prompt", "hello", "--raw"], "the model makes embeddings and generates no text"),
        (["--chat"], "the model makes embeddings and generates no text"),
        (["--batch", "-", "--seed", "5"], "--seed is not for this model, which makes embeddings"),
    ):
        with pytest.raises(UsageError, match=message):
            ran(embedder, *arguments)


def test_a_model_of_text_makes_no_vectors(tiny_package: Path) -> None:
    for arguments, message in (
        (["--embed", "hello"], "--embed is not for this model, which generates text"),
        (["--batch", "-", "--truncate"], "--truncate is not for this model, which generates text"),
    ):
        wanted = parse_generation_options("//:x", arguments)
        assert wanted is not None
        with pytest.raises(UsageError, match=message):
            run_package(tiny_package, wanted, GlobalOptions(environment={}, arguments=()))


def test_the_library_has_what_an_engine_calls_and_says_what_it_is(embedder: Embedder) -> None:
    chat = json.loads((embedder.package / "mlc-chat-config.json").read_text())
    assert chat["model_task"] == "embedding"
    assert chat["embedding_metadata"]["pooling_strategy"] == embedder.strategy
    assert json.loads((embedder.package / "tokenizer.json").read_text())["truncation"] is None
