"""Packages of models as others publish them have transformers' logits: from the source's files to the answer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from mlcbuild.runtime.engine import Engine
from tests.compiler.resolving import readers
from tests.compiler.test_tied_embeddings import kept
from tests.compiler.tiny_models import TINY, Array, checkpoint, write_gguf
from tests.runtime.tiny_package import build_package

pytestmark = pytest.mark.slow

TOKENS = [int(token) for token in np.random.default_rng(9).integers(1, 260, 50)]


def reference(source: Path | Mapping[str, Any]) -> Array:
    """The logits after the last token, by transformers: of a directory, or of a configuration with the tiny weights."""
    import torch
    import transformers

    if isinstance(source, Path):
        model = transformers.AutoModelForCausalLM.from_pretrained(source, dtype="float32")
    else:
        model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**source))
        model.load_state_dict({name: torch.from_numpy(tensor) for name, tensor in checkpoint().items()})
    with torch.no_grad():
        logits: Array = model(torch.tensor([TOKENS])).logits[0, -1].numpy()
    return logits


def found(source: Path, directory: Path, kernel_store: Path) -> Array:
    engine = Engine(build_package(source, directory, kernel_store=kernel_store), threads=1)
    engine.reset(capacity=64)
    logits: Array = engine.prefill(TOKENS)
    return logits


def assert_close(one: Array, other: Array) -> None:
    # float32 sums of up to 96 products of standard normals, in another order, through two layers.
    np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-3 * np.abs(other).max())


def test_a_head_of_its_own_is_used_though_config_json_ties_it(tmp_path: Path, kernel_store: Path) -> None:
    config = {**TINY, "tie_word_embeddings": True}
    source = tmp_path / "source"
    build_tokenizer(source)
    (source / "config.json").write_text(json.dumps(config))
    save_file(kept("differs", config), source / "model.safetensors", metadata={"format": "pt"})
    assert_close(found(source, tmp_path / "package", kernel_store), reference(source))


def build_tokenizer(directory: Path) -> None:
    from mlcbuild.compiler.stages import import_config
    from mlcbuild.rules.families import families

    directory.mkdir()
    gguf = write_gguf(directory.parent / "tokenizer.gguf", checkpoint())
    import_config.run(
        readers=readers(),
        source=gguf,
        config=directory / "config.json",
        tokenizer=directory,
        vocabulary=directory / "vocabulary.json",
        licenses=directory.parent / "licenses",
        families=families(),
    )


def test_the_scaling_of_an_older_gguf_file_is_computed(tmp_path: Path, kernel_store: Path) -> None:
    source = write_gguf(tmp_path / "m.gguf", checkpoint(), metadata={"llama.rope.scale_linear": 4.0})
    scaled = reference({**TINY, "rope_scaling": {"rope_type": "linear", "factor": 4.0}})
    assert np.abs(scaled - reference(TINY)).max() > 0.1 * np.abs(scaled).max()
    assert_close(found(source, tmp_path, kernel_store), scaled)
