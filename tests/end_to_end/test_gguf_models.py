"""What somebody does who has a GGUF file: `init`, `build`, `run`. The logits of a prompt, by the chat template of the
file, are llama.cpp's; of a model with windows and of one with experts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.compiler.gguf_cases import CASES
from tests.compiler.gguf_writing import file_of
from tests.compiler.llama_cpp import LlamaCppModel
from tests.end_to_end.world import World

_TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<{{ m.role }}>{{ m.content }}</{{ m.role }}>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
_PROMPT = "Grüß Gott! What do you know of windows?"  # with the template, longer than 16 tokens
_RENDERED = f"<s><user>{_PROMPT}</user><assistant>"


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["gemma3", "gpt_oss"])
def test_a_file_is_built_and_answers_as_in_llama_cpp(name: str, tmp_path: Path) -> None:
    world = World(tmp_path)
    path = file_of(world.root / "model.gguf", CASES[name], chat_template=_TEMPLATE)
    done = world.mlcbuild("init", "model.gguf")
    assert done.code == 0, done.err
    package = (
        '[[model_package]]\nname = "whole"\nmodel = ":model"\nquantization = "q0f32"\nplatform = "@platforms//:cpu"\n'
    )
    written = (world.root / "BUILD.toml").read_text()
    (world.root / "BUILD.toml").write_text(f"{written}\n{package}")
    done = world.build(":whole")
    assert done.code == 0, done.err
    file, asked = tmp_path / "logits.npz", ("--prompt", _PROMPT, "--max-tokens", "4")
    done = world.process("run", "//:whole", "--", *asked, "--logits", str(file), "--logits-of", "all")
    assert done.code == 0, done.err
    assert done.out
    reference = LlamaCppModel(path)
    tokens = reference.encode(_RENDERED, special=True)
    assert len(tokens) > 16
    expected = reference.logits(tokens)
    reference.close()
    saved = np.load(file)
    found = saved["logits"]
    assert saved["tokens"].tolist() == tokens
    bound = CASES[name].bound
    assert bound is not None
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=0, atol=bound * float(np.abs(expected).max()))
