"""A real model's GGUF file is read as transformers reads it."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer, pre_tokenizers

from mlcbuild.compiler.stages import import_config
from mlcbuild.compiler.weights.checkpoint import Checkpoint, sources_of
from mlcbuild.compiler.weights.source import open_source
from mlcbuild.rules.families import families
from tests.compiler.resolving import model_of, parameters_of, readers
from tests.smollm2 import smollm2_gguf

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]

SAMPLES = [
    "The capital of France is Paris.",
    "def f(x, y=2):\n    return [x**y for x in range(10)]  # comment",
    "  leading and trailing  \n\n\ttabs\r\nand\u00a0more\u2003spaces ",
    "naïve café — “quotes” … ﷽ İstanbul ß ǅ",
    "日本語と한국어と中文、そして🙂👩‍👩‍👧‍👦🏳️‍🌈",
    "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n",
    "I'm you're we'll they'd it's DON'T",
    "x=12345.678e-9;y=0xFF",
    "\u0000\u0007\u200b\ufeff\ud7ff\U0010ffff",
]


@pytest.fixture(scope="module")
def gguf() -> Path:
    return smollm2_gguf()


@pytest.fixture(scope="module")
def imported(gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("smollm2")
    import_config.run(
        readers=readers(),
        source=gguf,
        config=directory / "config.json",
        tokenizer=directory / "tokenizer",
        vocabulary=directory / "vocabulary.json",
        licenses=directory / "licenses",
        families=families(),
    )
    return directory


@pytest.fixture(scope="module")
def peer(gguf: Path) -> Any:
    import transformers

    return transformers.AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)


def random_texts() -> Iterator[str]:
    """Letters, digits, white space, other scripts and symbols, mixed."""
    source = random.Random(0)
    for _ in range(2000):
        kinds: list[Callable[[], int]] = [
            lambda: source.randrange(32, 127),
            lambda: source.randrange(0x20, 0x2500),
            lambda: source.randrange(0x4E00, 0x9FFF),
            lambda: source.randrange(0x1F300, 0x1F9FF),
            lambda: 32,
            lambda: ord(source.choice("0123456789\n\t")),
        ]
        yield "".join(chr(source.choice(kinds)()) for _ in range(source.randrange(1, 60)))


def test_every_tensor_is_what_transformers_dequantizes(gguf: Path, imported: Path) -> None:
    import torch
    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
    expected = {name: tensor.numpy() for name, tensor in model.state_dict().items() if name != "lm_head.weight"}
    parameters = parameters_of(json.loads((imported / "config.json").read_text()))
    assert {tensor.name for tensor in sources_of(parameters.parameters)} == expected.keys()
    source = open_source(gguf)
    found = Checkpoint(source, parameters, where=str(gguf))
    for name, tensor in expected.items():
        np.testing.assert_array_equal(found.read(name).numbers("float32"), tensor, err_msg=name)
    source.close()


def test_config_is_the_models(imported: Path) -> None:
    model = model_of(json.loads((imported / "config.json").read_text()))
    expected = {
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "head_dim": 64,
        "vocab_size": 49152,
        "context_window_size": 8192,
        "tie_word_embeddings": True,
        "position_embedding_base": 100000.0,
        "rms_norm_eps": 1e-05,
    }
    assert {name: model.model_config[name] for name in expected} == expected


def test_ids_are_those_of_transformers(imported: Path, peer: Any) -> None:
    tokenizer = Tokenizer.from_file(str(imported / "tokenizer" / "tokenizer.json"))
    for text in SAMPLES:
        assert tokenizer.encode(text).ids == peer(text).input_ids, repr(text)
        assert tokenizer.decode(tokenizer.encode(text).ids, skip_special_tokens=False) == text


def test_ids_are_those_of_transformers_once_it_cuts_as_the_file_says(imported: Path, peer: Any) -> None:
    """transformers takes no notice of `tokenizer.ggml.pre`; `smollm` cuts each digit off before anything else."""
    tokenizer = Tokenizer.from_file(str(imported / "tokenizer" / "tokenizer.json"))
    reference = Tokenizer.from_str(peer.backend_tokenizer.to_str())
    reference.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    for text in (*SAMPLES, *random_texts()):
        assert tokenizer.encode(text).ids == reference.encode(text).ids, repr(text)
    assert tokenizer.encode("   7").tokens == ["ĠĠĠ", "7"]


def test_chat_prompt_is_that_of_transformers(imported: Path, peer: Any) -> None:
    from mlcbuild.runtime.chat_message import one_turn
    from mlcbuild.runtime.package import ModelPackage
    from mlcbuild.runtime.tokenizer import PackageTokenizer

    directory = imported / "tokenizer"
    config = json.loads((directory / "tokenizer_config.json").read_text())
    tokenizer = PackageTokenizer(
        ModelPackage(directory=directory, library=directory / "lib.so", chat_config={}, tokenizer_config=config)
    )
    question = "What is the capital of France?"
    expected = peer.apply_chat_template(
        [{"role": "user", "content": question}], add_generation_prompt=True, return_dict=False
    )
    assert tokenizer.encode_chat(one_turn(question)) == list(expected)
