"""Schemes of ggml's own blocks: GGUF files have the bytes of their packages, and llama.cpp reads the same numbers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import gguf
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlcbuild.compiler.models.checkpoints.operations import Concatenate, Permute, Reshape, Slice
from mlcbuild.compiler.quantization.ggml import k_quants
from mlcbuild.compiler.quantization.ggml.scheme import GgmlScheme
from mlcbuild.compiler.quantization.scheme import QuantizationScheme
from mlcbuild.compiler.weights.block_types import BLOCK_TYPES, KEPT_AS_BLOCKS
from mlcbuild.compiler.weights.ggml_blocks import BlockMatrix, moves_rows, rows_of
from mlcbuild.compiler.weights.gguf_weights import GGUFWeights
from tests.compiler import schemes
from tests.compiler.gguf_cases import CASES
from tests.compiler.gguf_parity import read_file
from tests.compiler.gguf_writing import file_of
from tests.compiler.llama_cpp import dequantized, quantized
from tests.compiler.packaged import byte_level_tokenizer, gguf_of, write_tokenizer
from tests.compiler.parity import check_logits
from tests.compiler.schemes import matrix
from tests.compiler.staged_weights import imported
from tests.compiler.staged_weights import quantized as stage_quantized
from tests.compiler.test_gguf_packages import SPECIAL, logits, opened
from tests.compiler.tiny_models import Array

NAMES = [name for name in schemes.NAMES if isinstance(schemes.scheme(name), GgmlScheme)]
_CASE = replace(CASES["llama-q8_0"], half_norms=True)  # whose rows of q and k are interleaved in files


def _block(name: str) -> str:
    found = schemes.scheme(name)
    assert isinstance(found, GgmlScheme)
    return found.block


def _of_llama_cpp(numbers: Array, kind: str) -> Array:
    block = BLOCK_TYPES[kind]
    number = gguf.GGMLQuantizationType[kind].value
    return quantized(numbers.astype(np.float32), number, block_elements=block.elements, block_bytes=block.size)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32))
def test_q8_0_has_the_bytes_of_llama_cpp(seed: int) -> None:
    """Of weights of any size in float16, halves of a step and groups of zeros among them."""
    random = np.random.default_rng(seed)
    sizes = np.exp(random.uniform(np.log(1e-7), np.log(6e4), (4, 3, 1))) * random.choice([0.0, 1.0, 1.0], (4, 3, 1))
    whole = random.integers(-254, 255, (4, 3, 32)) / 254
    numbers = (np.where(random.random((4, 3, 1)) < 0.3, whole, random.uniform(-1, 1, (4, 3, 32))) * sizes).reshape(
        4, 96
    )
    numbers = numbers.astype(np.float16)
    (found,) = schemes.encoder(schemes.scheme("q8_0_f16")).encode(matrix(numbers.shape), numbers)
    np.testing.assert_array_equal(found, _of_llama_cpp(numbers, "Q8_0"))


@pytest.mark.parametrize("name", NAMES)
def test_weights_are_stored_as_well_as_by_llama_cpp(name: str) -> None:
    """Within 2 % of the root of its mean square error: the method is the same, the formulas are not."""
    random = np.random.default_rng(2)
    for numbers in (random.standard_normal((64, 1024)), random.standard_t(3, (64, 1024))):
        weights = numbers.astype(np.float16)
        (own,) = schemes.encoder(schemes.scheme(name)).encode(matrix(weights.shape), weights)
        errors = [
            float(np.square(BlockMatrix(kind=_block(name), data=data).restored() - weights).mean())
            for data in (own, _of_llama_cpp(weights, _block(name)))
        ]
        assert errors[0] ** 0.5 <= 1.02 * errors[1] ** 0.5


@pytest.mark.parametrize("kind", ["Q8_0", *KEPT_AS_BLOCKS])
def test_any_bytes_are_read_as_llama_cpp_reads_them(kind: str) -> None:
    block = BLOCK_TYPES[kind]
    random = np.random.default_rng(3)
    data = random.integers(0, 256, (40, 3, block.size), np.uint8)
    halves = {"Q8_0": [0], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208]}[kind]
    for place in halves:
        scales = (random.standard_normal((40, 3, 1)) * np.exp(random.uniform(-16, 4, (40, 3, 1)))).astype("<f2")
        data[..., place : place + 2] = scales.view(np.uint8)
    found = BlockMatrix(kind=kind, data=data.reshape(40, -1)).restored()
    expected = dequantized(kind.replace("Q", "q"), data.tobytes(), found.size)
    np.testing.assert_array_equal(found.reshape(-1), expected)


@pytest.mark.parametrize("name", [name for name in NAMES if _block(name) in KEPT_AS_BLOCKS])
def test_packed_parts_stand_for_their_numbers(name: str) -> None:
    numbers = np.random.default_rng(4).standard_normal((20, 256)).astype(np.float32)
    kind = _block(name)
    if kind == "Q6_K":
        parts = k_quants.symmetric(numbers)
        data = k_quants.packed_symmetric(parts)
    else:
        bits = int(kind[1])
        parts = k_quants.affine(numbers, (1 << bits) - 1)
        data = k_quants.packed_affine(parts, bits=bits)
    expected = parts.integers.astype(np.float32) * parts.steps[:, :, None] - parts.offsets[:, :, None]
    np.testing.assert_array_equal(BlockMatrix(kind=kind, data=data).restored(), expected.reshape(numbers.shape))


def test_rows_that_are_no_whole_blocks_are_stored_in_q8_0() -> None:
    scheme = schemes.scheme("q4_k_f16")
    (stored,) = scheme.stored(matrix((8, 320)))
    assert (stored.shape, stored.dtype) == ((8, 340), "uint8")
    assert scheme.stored(matrix((8, 512)))[0].shape == (8, 288)


def test_rows_are_found_after_operations_that_move_them() -> None:
    operations = (
        Concatenate(axis=0),
        Reshape(shape=(2, 3, 2, 8)),
        Permute(axes=(0, 2, 1, 3)),
        Slice(axis=0, begin=1, end=2),
    )
    shapes = [(4, 8), (8, 8)]
    assert moves_rows(operations, shapes)
    assert rows_of(operations, shapes).tolist() == [[[6, 8, 10], [7, 9, 11]]]
    assert not moves_rows((Permute(axes=(1, 0)),), [(4, 8)])


@pytest.mark.parametrize("name", [name for name in NAMES if _block(name) in KEPT_AS_BLOCKS])
def test_a_gguf_package_of_a_gguf_file_has_its_blocks(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = file_of(tmp_path / "model.gguf", replace(_CASE, kind=_block(name)))
    written = _repackaged(path, tmp_path / "it", name)
    said = capsys.readouterr().out
    assert "blocks kept as they are" in said
    assert "some" not in said
    assert "quantized again" not in said
    (_, first), (_, second) = opened(path), opened(written)
    assert [one for one in first if first[one] != second[one]] == []
    np.testing.assert_array_equal(logits(written), logits(path))


def test_rows_of_another_type_are_encoded_beside_those_that_are_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """q, k and v are one parameter, and llama.cpp's mixtures have v in more bits."""
    mixed = replace(_CASE, kind="Q4_K", others={r"blk\.\d+\.attn_v\.weight": "Q6_K"})
    path = file_of(tmp_path / "model.gguf", mixed)
    table = {"default": "q4_k_f16", "model.layers.*.self_attn.qkv_proj": "q6_k_f16"}
    document = read_file(path).document
    written = _repackaged(path, tmp_path / "it", schemes.mixed(document, table))
    said = capsys.readouterr().out
    assert "model.layers.0.self_attn.qkv_proj.weight: some blocks kept as they are" in said
    assert "model.layers.0.mlp.down_proj.weight: blocks kept as they are" in said
    assert "quantized again" not in said
    (_, first), (_, second) = opened(path), opened(written)
    moved = [f"blk.{layer}.attn_{part}.weight" for layer in range(3) for part in "qk"]
    assert sorted(one for one in first if first[one] != second[one]) == sorted(moved)
    weights, others = GGUFWeights(path), GGUFWeights(written)
    for one in moved:  # 4 bits with an offset as 6 bits without
        expected, found = (source.read(one).data for source in (weights, others))
        assert np.abs(found - expected).max() <= np.abs(expected).max() / 32
    weights.close()
    others.close()


_WIDE = {
    "model_type": "llama",
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 320,
    "max_position_embeddings": 128,
    "tie_word_embeddings": False,
    "rms_norm_eps": 1e-5,
}
_MIXTURE = {"default": "q4_k_f16", "lm_head": "q6_k_f16", "model.layers.*.mlp.down_proj": "q5_k_f16"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "quantization", [_MIXTURE, *(pytest.param(name, marks=pytest.mark.exhaustive) for name in NAMES)], ids=str
)
def test_logits_equal_those_of_transformers(
    quantization: str | dict[str, str], tmp_path: Path, kernel_store: Path
) -> None:
    check_logits(_WIDE, quantization, tmp_path, kernel_store=kernel_store)


def test_a_scheme_of_integers_takes_blocks_restored(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = file_of(tmp_path / "model.gguf", replace(_CASE, kind="Q4_K"))
    _repackaged(path, tmp_path / "it", "q8f16_1")
    assert "blocks restored, and quantized again" in capsys.readouterr().out


def _repackaged(path: Path, directory: Path, quantization: str | QuantizationScheme) -> Path:
    directory.mkdir()
    imported(directory, path, read_file(path).document)
    stage_quantized(directory, quantization)
    tokenizer = byte_level_tokenizer(_CASE.config["vocab_size"])
    special = write_tokenizer(directory / "tokenizer", tokenizer, **SPECIAL)
    return gguf_of(directory, special, quantization)
