"""A package's `mlc-chat-config.json` has what WebLLM reads of it (docs/engines.md), with values of its types."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from mlcbuild.compiler.stages import gen_config
from tests.compiler import schemes
from tests.compiler.family_cases import CASES
from tests.compiler.packaged import byte_level_tokenizer, write_tokenizer
from tests.compiler.resolving import write_configured, write_resolved

PAGE = Path(__file__).parents[2] / "docs/engines.md"
TEMPLATE = "{% for message in messages %}{{ message['role'] }}:{{ message['content'] }};{% endfor %}assistant:"
NUMBERS = (
    *("context_window_size", "sliding_window_size", "attention_sink_size", "vocab_size"),
    *("temperature", "top_p", "repetition_penalty", "frequency_penalty", "presence_penalty"),
)


def _chat_config(folder: Path, config: Mapping[str, Any], **overrides: int) -> dict[str, Any]:
    write_tokenizer(folder / "tokenizer", byte_level_tokenizer(config["vocab_size"]), chat_template=TEMPLATE)
    (folder / "config.json").write_text(json.dumps(config))
    write_resolved(folder, config)
    write_configured(folder, "q4f32_1", overrides)
    gen_config.run(
        model=folder / "configured.json",
        config=folder / "config.json",
        tokenizer=folder / "tokenizer",
        chat_config=folder / "mlc-chat-config.json",
        tokenizer_files=folder / "files",
        scheme=schemes.scheme("q4f32_1"),
    )
    document: dict[str, Any] = json.loads((folder / "mlc-chat-config.json").read_text())
    return document


def _told(file: str) -> set[str]:
    """The fields that the page says are read of a file."""
    (line,) = re.findall(rf"^\| {file} \| (.+) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    return set(re.findall(r"`(\w+)`", line))


def test_every_field_that_the_page_names_is_there(tmp_path: Path) -> None:
    chat = _chat_config(tmp_path, CASES["llama"].config)
    assert _told("`mlc-chat-config.json`") - chat.keys() == {"max_history_size"}
    assert _told("its `conv_template`") - chat["conv_template"].keys() == set()
    assert all(isinstance(chat[name], int | float) for name in NUMBERS)
    assert "tokenizer.json" in chat["tokenizer_files"]
    assert chat["tokenizer_info"].keys() >= {"token_postproc_method", "prepend_space_in_encode"}
    template = chat["conv_template"]
    assert template["roles"].keys() >= {"user", "assistant"}
    assert template["seps"], "WebLLM needs separators"
    assert all(isinstance(number, int) for number in template["stop_token_ids"])


@pytest.mark.parametrize(
    ("name", "overrides"),
    [("llama", {}), ("mistral-window", {}), ("mamba2", {"context_window_size": 512}), ("bert", {})],
)
def test_there_is_either_a_context_or_a_window(name: str, overrides: Mapping[str, int], tmp_path: Path) -> None:
    """The window of `mistral-window` is of all layers."""
    config = {**CASES["llama"].config, "model_type": "mistral", "sliding_window": 16}
    chat = _chat_config(tmp_path, config if name == "mistral-window" else CASES[name].config, **overrides)
    assert (chat["context_window_size"] == -1) != (chat["sliding_window_size"] == -1)
    assert chat["prefill_chunk_size"] > 0
    if name == "bert":
        assert chat["prefill_chunk_size"] == chat["context_window_size"]
