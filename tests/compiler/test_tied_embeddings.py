"""Whether a head is the embedding: as transformers decides it, for each way in which checkpoints are found."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from mlcbuild.compiler.stages import import_config
from mlcbuild.errors import StageError
from mlcbuild.rules.families import families
from tests.compiler import staged_weights
from tests.compiler.resolving import readers
from tests.compiler.tiny_models import ONE_TOKEN, TINY, TINY_QWEN2, Array, checkpoint, write_gguf, write_torch
from tests.parity_packages import parity_package

EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"


def kept(case: str, config: dict[str, object]) -> dict[str, Array]:
    """The tensors of a checkpoint."""
    tensors = checkpoint({**config, "tie_word_embeddings": False})
    if case == "equal":
        tensors[HEAD] = tensors[EMBEDDING].copy()
    elif case == "equal in another type":
        tensors[EMBEDDING] = tensors[EMBEDDING].astype(np.float16)
        tensors[HEAD] = tensors[EMBEDDING].astype(np.float32)
    elif case == "one number differs":
        tensors[HEAD] = tensors[EMBEDDING].copy()
        tensors[HEAD][-1, -1] += 1
    elif case == "embedding alone":
        del tensors[HEAD]
    elif case == "head alone":
        del tensors[EMBEDDING]
    return tensors


def write_model(directory: Path, tensors: dict[str, Array], config: dict[str, object]) -> None:
    directory.mkdir()
    (directory / "config.json").write_text(json.dumps(config))
    (directory / "tokenizer.json").write_text(ONE_TOKEN)
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})


def imported(source: Path, directory: Path) -> tuple[dict[str, Any], dict[str, Array]]:
    """The config.json and the tensors that come of a source."""
    config = directory / "imported.json"
    import_config.run(
        readers=readers(),
        source=source,
        config=config,
        tokenizer=directory / "tokenizer",
        vocabulary=directory / "vocabulary.json",
        licenses=directory / "licenses",
        families=families(),
    )
    document = json.loads(config.read_text())
    staged_weights.imported(directory, source, document)
    shards = sorted((directory / "shards").iterdir())
    return document, {name: tensor for shard in shards for name, tensor in load_file(shard).items()}


@pytest.mark.parametrize("family", [TINY, TINY_QWEN2], ids=["llama", "qwen2"])
@pytest.mark.parametrize("tie", [True, False])
@pytest.mark.parametrize(
    "case", ["equal", "equal in another type", "one number differs", "differs", "embedding alone", "head alone"]
)
def test_head_and_embedding_are_those_that_transformers_has(
    tmp_path: Path, case: str, tie: bool, family: dict[str, object]
) -> None:
    transformers = parity_package("transformers")
    config = {**family, "tie_word_embeddings": tie}
    write_model(tmp_path / "source", kept(case, config), config)
    if not tie and case.endswith("alone"):  # transformers makes up what is missing
        with pytest.raises(StageError, match=rf"missing: {HEAD if case == 'embedding alone' else EMBEDDING}"):
            imported(tmp_path / "source", tmp_path)
        return
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "source", dtype="float32")
    document, tensors = imported(tmp_path / "source", tmp_path)
    embedding = tensors[EMBEDDING].astype(np.float32)
    head = embedding if document["tie_word_embeddings"] else tensors[HEAD].astype(np.float32)
    np.testing.assert_array_equal(embedding, model.model.embed_tokens.weight.detach().numpy())
    np.testing.assert_array_equal(head, model.lm_head.weight.detach().numpy())
    if tie:  # a head that is equal is not kept twice
        assert document["tie_word_embeddings"] is ("differ" not in case)


def test_a_torch_checkpoint_has_both_as_torch_saves_them(tmp_path: Path) -> None:
    config = {**TINY, "tie_word_embeddings": True}
    write_model(tmp_path / "source", {}, config)
    (tmp_path / "source" / "model.safetensors").unlink()
    write_torch(tmp_path / "source" / "pytorch_model.bin", kept("equal", config))
    document, tensors = imported(tmp_path / "source", tmp_path)
    assert document["tie_word_embeddings"] is True
    assert HEAD not in tensors


def test_a_gguf_file_with_an_output_is_not_tied(tmp_path: Path) -> None:
    """As in llama.cpp: the tensor decides."""
    path = write_gguf(tmp_path / "m.gguf", kept("differs", dict(TINY)))
    document, tensors = imported(path, tmp_path)
    assert document["tie_word_embeddings"] is False
    np.testing.assert_array_equal(tensors[HEAD], kept("differs", dict(TINY))[HEAD])


def test_a_configuration_without_weights_is_imported_as_it_is(tmp_path: Path) -> None:
    config = {**TINY, "tie_word_embeddings": True}
    write_model(tmp_path / "source", {}, config)
    (tmp_path / "source" / "model.safetensors").unlink()
    import_config.run(
        readers=readers(),
        source=tmp_path / "source",
        config=tmp_path / "config.json",
        tokenizer=tmp_path / "tokenizer",
        vocabulary=tmp_path / "vocabulary.json",
        licenses=tmp_path / "licenses",
        families=families(),
    )
    assert json.loads((tmp_path / "config.json").read_text()) == config
