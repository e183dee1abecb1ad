"""Blocks of GGUF files that are integers are kept: packages have them, and GGUF files of these the same bytes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mlcbuild.compiler.weights.checkpoint import Checkpoint
from mlcbuild.compiler.weights.gguf_file import GGUFFile
from mlcbuild.compiler.weights.gguf_integers import integers_of
from mlcbuild.compiler.weights.source import open_source
from tests.compiler.gguf_cases import CASES
from tests.compiler.gguf_parity import read_file
from tests.compiler.gguf_writing import file_of
from tests.compiler.llama_cpp import dequantized
from tests.compiler.packaged import byte_level_tokenizer, gguf_of, write_tokenizer
from tests.compiler.resolving import parameters_of
from tests.compiler.staged_weights import imported, quantized
from tests.compiler.test_gguf_packages import SPECIAL, logits, opened

_CASE = CASES["llama-q8_0"]  # whose rows of q and k are interleaved in files


@pytest.mark.parametrize(("kind", "size"), [("Q4_0", 18), ("Q8_0", 34)])
def test_integers_are_those_of_llama_cpp(kind: str, size: int) -> None:
    """Any bytes are blocks: these are of all integers, and of scales that are numbers."""
    random = np.random.default_rng(0)
    blocks = random.integers(0, 256, (5, 7, 3, size), np.uint8)
    blocks[..., :2] = random.standard_normal((5, 7, 3, 1)).astype("<f2").view(np.uint8)
    found = integers_of(blocks, kind)
    assert found.codes.shape == (5, 7, 96)
    expected = dequantized(kind.lower(), blocks.tobytes(), found.codes.size)
    np.testing.assert_array_equal(found.restored().reshape(-1), expected)


@pytest.mark.parametrize("kind", ["Q4_0", "Q8_0"])
def test_what_is_kept_stands_for_the_numbers_of_the_file(kind: str, tmp_path: Path) -> None:
    path = file_of(tmp_path / "model.gguf", replace(_CASE, kind=kind))
    source = open_source(path)
    parameters = parameters_of(read_file(path).document)
    checkpoint = Checkpoint(source, parameters, where="it")
    names = [tensor.name for parameter in parameters.parameters for tensor in parameter.sources]
    kept = [name for name in names if checkpoint.groups(name) is not None]
    assert [name for name in names if name not in kept and "norm" not in name] == []
    for name in kept:
        np.testing.assert_array_equal(checkpoint.scaled(name).restored(), checkpoint.read(name).data)
    source.close()


@pytest.mark.parametrize(
    ("kind", "quantization"),
    [("Q4_0", "q4f16_1"), ("Q4_0", "q4f16_0"), ("Q8_0", "q8f16_1"), ("Q8_0", "q8_0_f16")],
)
def test_a_gguf_package_of_a_gguf_file_has_its_blocks(
    kind: str, quantization: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = file_of(tmp_path / "model.gguf", replace(_CASE, kind=kind, half_norms=True))
    document = read_file(path).document
    directory = tmp_path / "it"
    directory.mkdir()
    imported(directory, path, document)
    quantized(directory, quantization)
    said = capsys.readouterr().out
    assert "integers kept as they are" in said
    assert "quantized again" not in said
    special = write_tokenizer(tmp_path / "tokenizer", byte_level_tokenizer(_CASE.config["vocab_size"]), **SPECIAL)
    written = gguf_of(directory, special, quantization)
    (_, first), (_, second) = opened(path), opened(written)
    assert first.keys() == second.keys()
    assert [name for name in first if first[name] != second[name]] == []
    np.testing.assert_array_equal(logits(written), logits(path))


def test_other_types_are_restored(tmp_path: Path) -> None:
    path = file_of(tmp_path / "model.gguf", replace(_CASE, kind="Q4_1"))
    file = GGUFFile(path)
    kinds = {tensor.type_number for tensor in file.tensors.values()}
    file.close()
    assert kinds == {0, 3}  # F32 and Q4_1
    source = open_source(path)
    checkpoint = Checkpoint(source, parameters_of(read_file(path).document), where="it")
    assert checkpoint.groups("model.layers.0.mlp.down_proj.weight") is None
    source.close()
