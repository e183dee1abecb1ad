"""Metadata of GGUF files: what llama.cpp reads is read here, or refused by name; nothing is ignored in silence."""

from __future__ import annotations

import contextlib
import inspect
import json
import math
import struct
from collections.abc import Iterator
from pathlib import Path

import gguf
import pytest

from mlcbuild.compiler.models.gguf.config import decoder_document
from mlcbuild.compiler.models.gguf.keys import READ, WITHOUT_EFFECT
from mlcbuild.compiler.stages import import_config
from mlcbuild.compiler.tokenizer.from_gguf import tokenizer_files
from mlcbuild.compiler.weights.gguf_file import GGUFFile
from mlcbuild.compiler.weights.gguf_parts import GGUFValue
from mlcbuild.errors import StageError
from mlcbuild.rules.families import families
from tests.compiler.resolving import model_of, readers
from tests.compiler.tiny_models import TINY, TINY_QWEN2, checkpoint, write_gguf

Value = bool | int | float | str
HEAD_DIM = 16


def document(path: Path, **metadata: Value) -> dict[str, object]:
    """The config.json of a tiny llama with more metadata; names have "__" for "." and no architecture."""
    keys = {f"llama.{name.replace('__', '.')}": value for name, value in metadata.items()}
    return document_with(path, "llama", keys)


def document_with(path: Path, architecture: str, metadata: dict[str, Value]) -> dict[str, object]:
    config = TINY_QWEN2 if architecture == "qwen2" else TINY
    file = GGUFFile(write_gguf(path / "m.gguf", checkpoint(config), config, metadata=metadata))
    try:
        return decoder_document(file, architecture=architecture, model_type=architecture, class_name="C")
    finally:
        file.close()


def keys_of(holder: type) -> Iterator[str]:
    for value in vars(holder).values():
        if inspect.isclass(value):
            yield from keys_of(value)
        elif isinstance(value, str) and value.startswith("{arch}."):
            yield value.removeprefix("{arch}.")


ALL_KEYS = sorted({*keys_of(gguf.constants.Keys), "rope.scale_linear"})


@pytest.mark.parametrize("architecture", ["llama", "qwen2"])
@pytest.mark.parametrize("key", ALL_KEYS)
def test_every_key_that_gguf_has_is_read_or_refused_or_known_to_change_nothing(
    tmp_path: Path, architecture: str, key: str
) -> None:
    plain = document_with(tmp_path, architecture, {})
    found: list[dict[str, object]] = []
    for value in (3, 0.37, True, "other"):
        try:
            found.append(document_with(tmp_path, architecture, {f"{architecture}.{key}": value}))
        except StageError:
            continue
    if key in WITHOUT_EFFECT:
        assert found == [plain] * 4
    elif key in READ:
        assert plain not in found
    else:
        assert found == [plain] * len(found), "a key that is not read has values that are refused"
        assert len(found) < 2


def test_a_key_that_nothing_here_knows_is_refused_by_its_name(tmp_path: Path) -> None:
    with pytest.raises(StageError, match=r"llama\.attention\.novel is not known here"):
        document(tmp_path, attention__novel=1)


@pytest.mark.parametrize(
    "metadata",
    [
        {"attention__value_length": HEAD_DIM, "attention__key_length": HEAD_DIM},
        {"attention__scale": 1 / math.sqrt(HEAD_DIM)},
        {"attention__scale": 0.0, "logit_scale": 0.0, "embedding_scale": 1.0, "attention__clamp_kqv": 0.0},
        {"expert_count": 0, "expert_used_count": 0, "attention__causal": True, "use_parallel_residual": False},
        {"rope__scaling__type": "none", "rope__scaling__factor": 4.0},
        {"rope__scaling__factor": 0.0},
        {"rope__scaling__factor": 1.0, "rope__scaling__type": "linear"},
    ],
)
def test_values_that_change_nothing_are_accepted(tmp_path: Path, metadata: dict[str, Value]) -> None:
    extra = {"head_dim": HEAD_DIM}
    assert document(tmp_path, **metadata) == document(tmp_path) | extra


@pytest.mark.parametrize(
    "metadata",
    [
        {"rope__scale_linear": 4.0},
        {"rope__scaling__factor": 4.0},
        {"rope__scaling__factor": 4.0, "rope__scaling__type": "linear"},
        {"rope__scaling__factor": 4.0, "rope__scale_linear": 2.0},
    ],
)
def test_scaling_is_read_by_all_its_names_and_is_linear_without_a_type(
    tmp_path: Path, metadata: dict[str, Value]
) -> None:
    """llama.cpp's defaults (`load_hparams` in src/llama-model.cpp)."""
    assert document(tmp_path, **metadata)["rope_scaling"] == {"rope_type": "linear", "factor": 4.0}


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"type": "unknown"}, r'of the type "unknown" is not supported'),
        ({"type": "longrope"}, r"lacks the tensor rope_factors_long\.weight, which LongRoPE needs"),
        ({"type": "yarn", "factor": 4.0, "yarn_ext_factor": 0.5}, r"yarn_ext_factor is 0\.5; it can be 1 or -1"),
        ({"type": "yarn", "factor": 4.0, "yarn_attn_factor": 0.5}, r"yarn_attn_factor is 0\.5; it can be 1\.13863 or"),
        ({"type": "yarn", "factor": 4.0, "yarn_log_multiplier": 0.1}, r"yarn_log_multiplier is 0\.1; it can be 0"),
    ],
)
def test_scalings_that_are_not_computed_are_refused(tmp_path: Path, metadata: dict[str, Value], message: str) -> None:
    with pytest.raises(StageError, match=message):
        document(tmp_path, **{f"rope__scaling__{name}": value for name, value in metadata.items()})


def test_yarn_has_the_defaults_of_llama_cpp(tmp_path: Path) -> None:
    scaling: dict[str, Value] = {"rope__scaling__type": "yarn", "rope__scaling__factor": 4.0}
    found = {"rope_type": "yarn", "factor": 4.0, "beta_fast": 32.0, "beta_slow": 1.0}
    assert document(tmp_path, **scaling)["rope_scaling"] == {**found, "original_max_position_embeddings": 128}
    own = {"beta_fast": 16.0, "beta_slow": 2.0, "original_max_position_embeddings": 64}
    metadata: dict[str, Value] = {
        **scaling,
        "rope__scaling__original_context_length": 64,
        "rope__scaling__yarn_beta_fast": 16.0,
        "rope__scaling__yarn_beta_slow": 2.0,
        "rope__scaling__yarn_attn_factor": 0.1 * math.log(4.0) + 1.0,
    }
    assert document(tmp_path, **metadata)["rope_scaling"] == {**found, **own}


def test_factors_and_a_scaling_at_once_are_refused(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", checkpoint(TINY), metadata={"llama.rope.scaling.factor": 2.0})
    file = GGUFFile(path)
    file.tensors["rope_freqs.weight"] = file.tensors["output_norm.weight"]
    with pytest.raises(StageError, match="both by a factor and by the tensor"):
        decoder_document(file, architecture="llama", model_type="llama", class_name="C")
    file.close()


def import_gguf(directory: Path, **metadata: Value) -> None:
    keys = {name.replace("__", "."): value for name, value in metadata.items()}
    import_config.run(
        readers=readers(),
        source=write_gguf(directory / "m.gguf", checkpoint(), metadata=keys),
        config=directory / "config.json",
        tokenizer=directory / "tokenizer",
        vocabulary=directory / "vocabulary.json",
        licenses=directory / "licenses",
        families=families(),
    )


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"general__type": "adapter"}, r'm\.gguf holds no model: its "general\.type" is "adapter"'),
        ({"general__type": "mmproj"}, r'its "general\.type" is "mmproj"'),
        (
            {"split__count": 3},
            r"m\.gguf is one of 3 parts of a model, and part 2, 3 are missing\n.*a folder with all parts",
        ),
    ],
)
def test_a_file_that_is_not_a_whole_model_is_told(tmp_path: Path, metadata: dict[str, Value], message: str) -> None:
    with pytest.raises(StageError, match=message):
        import_gguf(tmp_path, **metadata)


@pytest.mark.parametrize("number", [-1, 2**32 - 1])
def test_a_special_token_of_number_minus_one_is_none(tmp_path: Path, number: int) -> None:
    """llama.cpp's LLAMA_TOKEN_NULL, which files have with and without a sign."""
    path = write_gguf(tmp_path / "m.gguf", checkpoint())
    file = GGUFFile(path)
    assert isinstance(file.metadata, dict)
    file.metadata["tokenizer.ggml.padding_token_id"] = number
    found = decoder_document(file, architecture="llama", model_type="llama", class_name="C")
    assert "pad_token_id" not in found
    assert file.token_id("padding") is None
    file.close()


def string(text: str) -> bytes:
    return struct.pack("<Q", len(text)) + text.encode()


@pytest.mark.parametrize("what", ["metadata", "tensor"])
def test_what_a_file_has_twice_is_told(tmp_path: Path, what: str) -> None:
    """llama.cpp refuses it, too: which of the two counts would be chance."""
    keys = b"".join(string("a.b") + struct.pack("<II", 4, number) for number in (1, 2))
    tensors = b"".join(string("a.b") + struct.pack("<IQIQ", 1, 1, 0, number * 32) for number in (0, 1))
    counts = struct.pack("<QQ", *((0, 2) if what == "metadata" else (2, 0)))
    path = tmp_path / "m.gguf"
    path.write_bytes(b"GGUF" + struct.pack("<I", 3) + counts + (keys if what == "metadata" else tensors) + bytes(256))
    with pytest.raises(StageError, match=rf"it has the {what} \"?a\.b\"? twice"):
        GGUFFile(path)


# What a file can have in place of anything: other types, other signs, numbers that do not fit.
ANYTHING: list[GGUFValue] = [0, -1, 3, 2**63, -(2**63), True, 0.0, -0.5, 1e-46, 1e300, math.inf, math.nan, "", "x"]
ANYTHING += [[], [1], ["a"], [1.5], [True], [[1]]]
ARCHITECTURE_KEYS = [f"llama.{name}" for name in ALL_KEYS]
TOKENIZER_KEYS = [
    *(f"tokenizer.ggml.{name}" for name in ("model", "pre", "tokens", "token_type", "merges", "scores")),
    *(f"tokenizer.ggml.{name}_token_id" for name in ("bos", "eos", "eot", "eom", "unknown", "padding")),
    *(f"tokenizer.ggml.add_{name}" for name in ("bos_token", "eos_token", "space_prefix")),
    "tokenizer.chat_template",
]


@pytest.mark.parametrize("vocabulary", ["gpt2", "llama"])
@pytest.mark.parametrize("key", [*ARCHITECTURE_KEYS, *TOKENIZER_KEYS])
def test_any_value_of_any_metadata_is_read_or_refused(tiny: GGUFFile, vocabulary: str, key: str) -> None:
    (family,) = (family for family in families() if "llama" in family.gguf)
    before = dict(tiny.metadata)
    for value in ANYTHING:
        tiny.metadata = {**before, "tokenizer.ggml.model": vocabulary, "tokenizer.ggml.scores": [0.0] * 300, key: value}
        with contextlib.suppress(StageError):
            document = family.gguf["llama"].config(tiny)
            model_of(json.loads(json.dumps(document)))
        if key in TOKENIZER_KEYS:
            with contextlib.suppress(StageError):
                tokenizer_files(tiny, family.gguf["llama"].cuts)
    tiny.metadata = before


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GGUFFile]:
    file = GGUFFile(write_gguf(tmp_path_factory.mktemp("tiny") / "m.gguf", checkpoint()))
    yield file
    file.close()


@pytest.mark.parametrize(("version", "is_read"), [(1, False), (2, True), (3, True), (4, False)])
def test_both_versions_that_files_are_of_are_read(tmp_path: Path, version: int, is_read: bool) -> None:
    """Many files of 2023 are of version 2, which differs from 3 by the byte order that may be."""
    path = write_gguf(tmp_path / "m.gguf", checkpoint())
    content = bytearray(path.read_bytes())
    content[4:8] = struct.pack("<I", version)
    path.write_bytes(content)
    if is_read:
        file = GGUFFile(path)
        assert file.integer("llama.block_count") == 2
        file.close()
    else:
        with pytest.raises(StageError, match=rf"is GGUF of version {version}; versions 2 and 3 are read"):
            GGUFFile(path)
