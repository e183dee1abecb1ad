"""What files of sentence-transformers say of a model becomes a field of its config.json, or is refused."""

from __future__ import annotations

import json
import re
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from mlcbuild.compiler.models.configuration.sentence_transformers import embedding_fields
from mlcbuild.compiler.stages import import_config
from mlcbuild.compiler.tokenizer.word_pieces import word_piece_tokenizer
from mlcbuild.errors import StageError
from mlcbuild.rules.families import families
from tests.compiler.resolving import model_of, readers

MINILM = {
    "pooling_mode_cls_token": False,
    "pooling_mode_mean_tokens": True,
    "pooling_mode_max_tokens": False,
    "pooling_mode_mean_sqrt_len_tokens": False,
    "word_embedding_dimension": 384,
}
BERT = {"model_type": "bert", "max_position_embeddings": 128}


def write(directory: Path, *kinds: str, pooling: object = MINILM, length: dict[str, object] | None = None) -> Path:
    """The files beside a model with these steps."""
    paths = {"Transformer": "", "Pooling": "1_Pooling", "Normalize": "2_Normalize"}
    modules = [
        {
            "idx": number,
            "name": str(number),
            "path": paths.get(kind, kind),
            "type": f"sentence_transformers.models.{kind}",
        }
        for number, kind in enumerate(kinds)
    ]
    (directory / "modules.json").write_text(json.dumps(modules))
    if pooling is not None:
        (directory / "1_Pooling").mkdir()
        (directory / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    if length is not None:
        (directory / "sentence_bert_config.json").write_text(json.dumps(length))
    return directory


@pytest.mark.parametrize(
    ("pooling", "strategy"),
    [
        (MINILM, "mean"),
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, "cls"),
        ({"pooling_mode_lasttoken": True, "include_prompt": True}, "last"),
        ({"pooling_mode": "lasttoken"}, "last"),
    ],
)
def test_pooling_and_length_are_read(tmp_path: Path, pooling: object, strategy: str) -> None:
    length: dict[str, object] = {"max_seq_length": 100, "do_lower_case": False}
    fields = embedding_fields(write(tmp_path, "Transformer", "Pooling", "Normalize", pooling=pooling, length=length))
    model = model_of({**BERT, **fields})
    assert model.embedding is not None
    assert model.embedding.document == {"model_type": "encoder", "pooling_strategy": strategy, "normalize": True}
    assert (model.sizes.context_window_size, model.sizes.prefill_chunk_size) == (100, 100)


def test_without_a_last_step_vectors_are_not_normalized(tmp_path: Path) -> None:
    fields = embedding_fields(write(tmp_path, "Transformer", "Pooling"))
    assert fields == {"embedding_metadata": {"pooling_strategy": "mean", "normalize": False}}


def test_other_models_have_no_such_field(tmp_path: Path) -> None:
    assert embedding_fields(tmp_path) == {}


@pytest.mark.parametrize(
    ("kinds", "pooling", "length", "message"),
    [
        (("Transformer", "Pooling", "Dense"), MINILM, None, "the step Dense is not supported"),
        (("Transformer",), MINILM, None, "the steps are Transformer; they have to be Transformer, Pooling, Normalize"),
        (("Transformer", "Pooling"), None, None, "1_Pooling/config.json is missing"),
        (("Transformer", "Pooling"), {"pooling_mode_max_tokens": True}, None, "pooling by pooling_mode_max_tokens"),
        (("Transformer", "Pooling"), {**MINILM, "pooling_mode_cls_token": True}, None, "and pooling_mode_mean_tokens"),
        (("Transformer", "Pooling"), {"pooling_mode": "max"}, None, "pooling by max is not supported"),
        (("Transformer", "Pooling"), {}, None, "pooling by nothing"),
        (("Transformer", "Pooling"), MINILM, {"max_seq_length": 0}, '"max_seq_length" is 0'),
    ],
)
def test_what_is_not_computed_is_refused(
    tmp_path: Path, kinds: tuple[str, ...], pooling: object, length: dict[str, object] | None, message: str
) -> None:
    with pytest.raises(StageError, match=re.escape(message)):
        embedding_fields(write(tmp_path, *kinds, pooling=pooling, length=length))


@pytest.mark.parametrize("path", ["..", "1_Pooling/../..", "/1_Pooling"])
def test_a_step_outside_of_the_folder_is_refused(tmp_path: Path, path: str) -> None:
    modules = [{"type": "Transformer", "path": ""}, {"type": "Pooling", "path": path}]
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "modules.json").write_text(json.dumps(modules))
    (tmp_path / "config.json").write_text(json.dumps(MINILM))
    with pytest.raises(StageError, match=re.escape(f'"path" is "{path}"; it has to be a folder inside of the model')):
        embedding_fields(tmp_path / "model")


@pytest.mark.parametrize(
    ("tokenizer", "is_taken"),
    [
        ({}, True),  # of which BERT's class lower-cases
        ({"do_lower_case": False}, False),
        ({"normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Lowercase"}]}}, True),
        ({"normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}]}}, False),
        ({"normalizer": None}, False),
    ],
)
def test_lower_case_is_left_to_the_tokenizer(tmp_path: Path, tokenizer: dict[str, Any], is_taken: bool) -> None:
    """As the published BGE models have it, and a tokenizer that does not lower-case is refused."""
    source = tmp_path / "source"
    source.mkdir()
    write(source, "Transformer", "Pooling", length={"max_seq_length": 100, "do_lower_case": True})
    (source / "config.json").write_text(json.dumps(BERT))
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "hello"]
    (source / "vocab.txt").write_text("\n".join(words) + "\n")
    (source / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "BertTokenizer", **tokenizer}))
    if "normalizer" in tokenizer:
        made = word_piece_tokenizer(
            {word: number for number, word in enumerate(words)},
            unknown="[UNK]",
            lowercase=False,
            strips_accents=None,
            where="vocab.txt",
        )
        document = json.loads(made.to_str()) | tokenizer
        (source / "tokenizer.json").write_text(json.dumps(document))
    taken = nullcontext() if is_taken else pytest.raises(StageError, match='"do_lower_case" is true, and the tokenizer')
    with taken:
        import_config.run(
            readers=readers(),
            source=source,
            config=tmp_path / "config.json",
            tokenizer=tmp_path / "tokenizer",
            vocabulary=tmp_path / "vocabulary.json",
            licenses=tmp_path / "licenses",
            families=families(),
        )
        assert json.loads((tmp_path / "config.json").read_text())["embedding_metadata"]["max_seq_length"] == 100


@pytest.mark.parametrize("content", [b"{}", b"[1]", b"[", b"\xff"])
def test_a_damaged_list_of_steps_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "modules.json").write_bytes(content)
    with pytest.raises(StageError, match=re.escape("modules.json")):
        embedding_fields(tmp_path)


def test_a_field_of_the_configuration_is_checked() -> None:
    for given, message in (
        ({"pooling_strategy": "max"}, '"pooling_strategy" is "max"; known: cls, mean, last'),
        ({"pooling_strategy": "cls", "model_type": "decoder"}, '"model_type" is "decoder"; this model is an encoder'),
        ({"pooling_strategy": "cls", "other": 1}, 'the field "other" is not known'),
        ({}, '"pooling_strategy" is missing'),
    ):
        with pytest.raises(StageError, match=re.escape(message)):
            model_of({**BERT, "embedding_metadata": given})


def test_a_text_cannot_be_longer_than_there_are_positions() -> None:
    from mlcbuild.compiler.models.sizes import Overrides, library_sizes

    limits = model_of(BERT).limits
    assert library_sizes(limits, Overrides(context_window_size=64), model_type="bert").prefill_chunk_size == 64
    with pytest.raises(StageError, match="context_window_size is 129; the model has vectors for 128 positions"):
        library_sizes(limits, Overrides(context_window_size=129), model_type="bert")
