"""What a serving engine is told of a model's configuration, tokenizer and chat template."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer

from mlcbuild.compiler.stages import gen_config
from mlcbuild.compiler.tokenizer import conversation
from mlcbuild.errors import StageError
from mlcbuild.runtime.chat_template import render
from tests.compiler import schemes
from tests.compiler.imported_config import imported
from tests.compiler.resolving import write_configured, write_resolved
from tests.compiler.tiny_models import TINY, checkpoint, write_config, write_gguf

CHATML = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou are helpful<|im_end|>\n' }}{% endif %}"
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
LLAMA3 = (
    "{% for message in messages %}{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'"
    "+ message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}{% set content = bos_token + content %}"
    "{% endif %}{{ content }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"
)
MISTRAL = (
    "{{ bos_token }}{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}{% if message['role'] == 'user' %}"
    "{{ '[INST] ' + message['content'] + ' [/INST]' }}{% elif message['role'] == 'assistant' %}"
    "{{ message['content'] + eos_token}}{% endif %}{% endfor %}"
)
SYSTEM = {"role": "system", "content": "Be brief."}
DIALOGUE = [
    {"role": "user", "content": "Hello"},
    {"role": "assistant", "content": "Hi!"},
    {"role": "user", "content": "How are you?"},
]


def generated(directory: Path, **overrides: object) -> dict[str, Any]:
    write_resolved(directory, json.loads((directory / "config.json").read_text()))
    write_configured(directory, "q4f16_1", overrides)
    gen_config.run(
        model=directory / "configured.json",
        config=directory / "config.json",
        tokenizer=directory / "tokenizer",
        chat_config=directory / "mlc-chat-config.json",
        tokenizer_files=directory / "files",
        scheme=schemes.scheme("q4f16_1"),
    )
    document: dict[str, Any] = json.loads((directory / "mlc-chat-config.json").read_text())
    return document


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """A directory with the imported configuration and tokenizer of a tiny GGUF model."""
    imported(write_gguf(tmp_path / "m.gguf", checkpoint()), tmp_path)
    return tmp_path


def test_chat_config_has_mlcs_fields_in_its_order(tiny: Path) -> None:
    document = generated(tiny)
    assert list(document) == [
        *["version", "model_type", "quantization", "model_config", "vocab_size", "context_window_size"],
        *["sliding_window_size", "prefill_chunk_size", "attention_sink_size", "tensor_parallel_shards"],
        *["pipeline_parallel_stages", "active_vocab_size", "temperature", "presence_penalty", "frequency_penalty"],
        *["repetition_penalty", "top_p", "tokenizer_files", "tokenizer_info", "conv_template", "pad_token_id"],
        *["bos_token_id", "eos_token_id", "model_task", "embedding_metadata"],
    ]
    assert document["model_config"]["hidden_size"] == 64
    assert document["tokenizer_files"] == ["tokenizer.json", "tokenizer_config.json"]
    assert sorted(path.name for path in (tiny / "files").iterdir()) == document["tokenizer_files"]
    assert document["tokenizer_info"] == {
        "token_postproc_method": "byte_level",
        "prepend_space_in_encode": False,
        "strip_space_in_decode": False,
    }


def test_values_are_filled_from_generation_config_then_config_then_defaults(tiny: Path) -> None:
    (tiny / "tokenizer" / "generation_config.json").write_text('{"temperature": 0.6, "eos_token_id": [7, 9]}')
    write_config(tiny / "config.json", eos_token_id=5, bos_token_id=6, top_p=0.9)
    document = generated(tiny)
    assert (document["temperature"], document["top_p"], document["repetition_penalty"]) == (0.6, 0.9, 1.0)
    assert (document["eos_token_id"], document["bos_token_id"], document["pad_token_id"]) == ([7, 9], 6, 0)
    assert document["conv_template"]["stop_token_ids"] == [7, 9, 0]  # 0 is the tokenizer's own


def test_a_token_that_no_configuration_names_is_the_tokenizers_own(tiny: Path) -> None:
    (number,) = with_tokens(tiny, "<|im_end|>")
    document = {name: value for name, value in TINY.items() if not name.endswith("_token_id")}
    (tiny / "config.json").write_text(json.dumps(document))
    (tiny / "tokenizer" / "generation_config.json").unlink()
    path = tiny / "tokenizer" / "tokenizer_config.json"
    path.write_text(json.dumps({"eos_token": "<|im_end|>", "pad_token": {"content": "<|end|>"}}))
    made = generated(tiny)
    assert (made["eos_token_id"], made["pad_token_id"], made["bos_token_id"]) == (number, 0, 1)
    path.write_text("{}")
    assert generated(tiny)["eos_token_id"] == 2  # MLC-LLM's default


def test_overrides_reach_the_chat_config(tiny: Path) -> None:
    document = generated(tiny, context_window_size=32)
    assert (document["context_window_size"], document["prefill_chunk_size"]) == (32, 32)
    assert document["model_config"]["context_window_size"] == 32


def test_tokenizer_larger_than_the_vocabulary_is_refused(tiny: Path) -> None:
    write_config(tiny / "config.json", vocab_size=299)
    with pytest.raises(StageError, match=r'rows are 0 to 298: "<unused37>" \(299\)\n.*of two models'):
        generated(tiny)


def add_token(directory: Path, token: str, number: int) -> None:
    """Give the last token of the vocabulary another name and number: the count stays at 300."""
    path = directory / "tokenizer" / "tokenizer.json"
    document = json.loads(path.read_text())
    vocabulary = document["model"]["vocab"]
    del vocabulary[max(vocabulary, key=vocabulary.get)]
    vocabulary[token] = number
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    document["added_tokens"].append({"id": number, "content": token, **flags})
    path.write_text(json.dumps(document))


@pytest.mark.parametrize("number", [300, 5000])
def test_an_added_token_beyond_the_embedding_is_refused_with_advice(tiny: Path, number: int) -> None:
    """The largest number counts, and not how many there are."""
    add_token(tiny, "<pad>", number)
    write_config(tiny / "config.json", vocab_size=300)
    with pytest.raises(StageError, match=rf'"<pad>" \({number}\)\n.*remove them from added_tokens(.|\n)*resize_token'):
        generated(tiny)


def test_numbers_without_a_token_count_as_those_that_a_model_may_choose(tiny: Path) -> None:
    add_token(tiny, "<late>", 310)
    write_config(tiny / "config.json", vocab_size=320)
    assert generated(tiny)["active_vocab_size"] == 311


@pytest.mark.parametrize(("value", "expected"), [(-1, 0), ([-1, 7], 7), ([-1], 0), (5, 5)])
def test_a_negative_token_number_is_none(tiny: Path, value: object, expected: object) -> None:
    """As in many published configurations: "pad_token_id": -1."""
    write_config(tiny / "config.json", pad_token_id=value)
    assert generated(tiny)["pad_token_id"] == expected


def test_several_templates_without_a_default_are_none(tiny: Path) -> None:
    """Transformers loads such a tokenizer, and renders a template that is asked for by name alone."""
    path = tiny / "tokenizer" / "tokenizer_config.json"
    document = json.loads(path.read_text())
    document["chat_template"] = [{"name": "rag", "template": CHATML}, {"name": "tool_use", "template": CHATML}]
    path.write_text(json.dumps(document))
    assert generated(tiny)["conv_template"]["name"] == "LM"


def test_template_in_a_file_of_its_own_is_carried_in_the_tokenizers_configuration(tiny: Path) -> None:
    (tiny / "tokenizer" / "chat_template.jinja").write_text(CHATML)
    document = generated(tiny)
    assert document["conv_template"]["roles"]["user"] == "<|im_start|>user"
    assert json.loads((tiny / "files" / "tokenizer_config.json").read_text())["chat_template"] == CHATML


def gguf_with_ends(path: Path, types: dict[str, int], **ends: int) -> Path:
    """A tiny GGUF whose vocabulary ends with these tokens, and whose metadata names some by number."""
    import gguf

    tokens = ["a", "b", "ab", *types]
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(1)
    writer.add_context_length(64)
    writer.add_embedding_length(64)
    writer.add_feed_forward_length(64)
    writer.add_head_count(2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(tokens)
    writer.add_token_types([1, 1, 1, *types.values()])
    writer.add_token_merges(["a b"])
    for name, number in ends.items():
        getattr(writer, f"add_{name}_token_id")(number)
    writer.add_tensor("token_embd.weight", np.ones((len(tokens), 64), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize(
    ("types", "named", "expected"),
    [
        ({"<stop>": 3, "<turn>": 3, "<more>": 3}, {"eos": 3, "eot": 4, "eom": 5}, [3, 4, 5]),
        ({"<stop>": 3, "<turn>": 3}, {"eos": 3, "eot": 3}, [3]),
        # llama.cpp finds these by their text, whatever type the converter gave them.
        ({"<|end_of_text|>": 3, "<|eot_id|>": 3, "<|eom_id|>": 4}, {"eos": 3}, [3, 4, 5]),
        ({"<|endoftext|>": 3, "<|im_end|>": 1}, {"eos": 4}, [4, 3]),
        ({"<turn>": 3}, {"eot": 3}, [3]),
    ],
)
def test_every_token_that_ends_an_answer_in_llama_cpp_ends_one_here(
    tmp_path: Path, types: dict[str, int], named: dict[str, int], expected: list[int]
) -> None:
    # Right values: `special_eog_ids` in llama.cpp's src/llama-vocab.cpp.
    path = gguf_with_ends(tmp_path / "m.gguf", types, **named)
    imported(path, tmp_path)
    document = generated(tmp_path)
    ends = document["eos_token_id"]
    assert (ends if isinstance(ends, list) else [ends]) == expected
    assert document["conv_template"]["stop_token_ids"] == expected


def test_an_end_beyond_the_vocabulary_is_told(tmp_path: Path) -> None:
    path = gguf_with_ends(tmp_path / "m.gguf", {"<stop>": 3}, eos=3, eot=9)
    with pytest.raises(StageError, match=r'"tokenizer\.ggml\.eot_token_id" is 9; the vocabulary has 4 tokens'):
        imported(path, tmp_path)


def with_tokens(directory: Path, *texts: str) -> list[int]:
    """Add special tokens in place of unused ones of the tiny tokenizer; returns their numbers."""
    path = directory / "tokenizer" / "tokenizer.json"
    document = json.loads(path.read_text())
    unused = [token for token in document["model"]["vocab"] if token.startswith("<unused")]
    vocabulary = document["model"]["vocab"]
    numbers = []
    for text, old in zip(texts, unused, strict=False):
        numbers.append(vocabulary.pop(old))
        vocabulary[text] = numbers[-1]
    path.write_text(json.dumps(document))
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.add_special_tokens(list(texts))
    tokenizer.save(str(path))
    return numbers


@pytest.mark.parametrize("template", [LLAMA3, CHATML, MISTRAL])
def test_the_token_that_a_template_writes_after_an_answer_ends_one(tiny: Path, template: str) -> None:
    end = {LLAMA3: "<|eot_id|>", CHATML: "<|im_end|>", MISTRAL: "</s>"}[template]
    (number,) = with_tokens(tiny, end)
    write_config(tiny / "config.json", eos_token_id=5)
    configuration = {"chat_template": template, "bos_token": "<s>", "eos_token": "</s>"}
    (tiny / "tokenizer" / "tokenizer_config.json").write_text(json.dumps(configuration))
    (tiny / "tokenizer" / "generation_config.json").unlink(missing_ok=True)
    document = generated(tiny)
    assert document["eos_token_id"] == 5
    assert document["conv_template"]["stop_token_ids"] == [5, number]


def test_special_tokens_of_a_file_of_their_own_reach_the_package_where_transformers_reads_it(tiny: Path) -> None:
    (number,) = with_tokens(tiny, "<|im_end|>")
    folder = tiny / "tokenizer"
    (folder / "special_tokens_map.json").write_text('{"eos_token": {"content": "<|im_end|>", "lstrip": false}}')
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|end|>"}))
    assert number in generated(tiny)["conv_template"]["stop_token_ids"]
    assert json.loads((tiny / "files" / "tokenizer_config.json").read_text())["eos_token"] == "<|im_end|>"
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|end|>", "added_tokens_decoder": {}}))
    assert number not in generated(tiny)["conv_template"]["stop_token_ids"]


def test_a_template_alone_makes_a_tokenizer_configuration(tiny: Path) -> None:
    (tiny / "tokenizer" / "tokenizer_config.json").unlink()
    (tiny / "tokenizer" / "chat_template.jinja").write_text(CHATML)
    assert "tokenizer_config.json" in generated(tiny)["tokenizer_files"]
    assert json.loads((tiny / "files" / "tokenizer_config.json").read_text()) == {"chat_template": CHATML}


def test_a_template_that_is_no_text_is_told(tiny: Path) -> None:
    path = tiny / "tokenizer" / "chat_template.jinja"
    path.write_bytes(b"{{ messages }} \xff")
    with pytest.raises(StageError, match=r"chat_template\.jinja is not UTF-8: it has byte 0xff at 15"):
        generated(tiny)
    path.unlink()
    (tiny / "tokenizer" / "tokenizer_config.json").write_text('{"chat_template": [], "bos_token": "\\ud83d"}')
    (tiny / "tokenizer" / "special_tokens_map.json").write_text('{"eos_token": "\\ud83d"}')
    with pytest.raises(StageError, match=r"U\+D83D, half of a pair"):
        generated(tiny)


def test_a_template_that_asks_for_the_date_gives_the_same_on_every_day(tiny: Path) -> None:
    dated = "{{ '<|im_start|>system\nToday: ' + day + '<|im_end|>\n' }}" + CHATML
    optional = "{% set day = strftime_now('%d') if strftime_now is defined else '26 Jul 2024' %}" + dated
    found = conversation.from_template(optional, tokens={"eos_token": "<|im_end|>"})
    assert found is not None
    assert "Today: 26 Jul 2024" in found.prompt(DIALOGUE)
    always = "{% set day = strftime_now('%d') %}" + dated
    assert conversation.from_template(always, tokens={"eos_token": "<|im_end|>"}) is None
    for template in (optional, always):
        assert conversation.text_after_an_answer(template, tokens={}) == "<|im_end|>\n"


@pytest.mark.parametrize("template", [CHATML, LLAMA3, MISTRAL])
def test_conversation_says_what_the_template_says(template: str) -> None:
    eos = {CHATML: "<|im_end|>", LLAMA3: "<|eot_id|>", MISTRAL: "</s>"}[template]
    found = conversation.from_template(template, tokens={"bos_token": "<s>", "eos_token": eos}, bos_token_id=1)
    assert found is not None
    assert (found.system_prefix_token_ids == (1,)) == ("bos_token" in template)
    accepts_system = template is not MISTRAL
    messages = [SYSTEM, *DIALOGUE] if accepts_system else DIALOGUE
    assert found.prompt(messages) == render(template, messages, tokens={"bos_token": "", "eos_token": eos})


def test_default_system_message_of_a_template_is_found() -> None:
    found = conversation.from_template(CHATML, tokens={"eos_token": "<|im_end|>"})
    assert found is not None
    assert found.system_message == "You are helpful"
    assert found.document()["system_template"] == "<|im_start|>system\n{system_message}<|im_end|>\n"
    assert found.prompt(DIALOGUE) == render(CHATML, DIALOGUE, tokens={"eos_token": "<|im_end|>"})


@pytest.mark.parametrize(
    "template",
    [
        "{% for m in messages %}{{ loop.index }}: {{ m['content'] }}\n{% endfor %}",
        "{{ messages[-1]['content'] }}",
        "{{ raise_exception('no') }}",
        "{% for m in messages %}",
    ],
)
def test_template_without_an_equal_is_no_conversation(template: str) -> None:
    assert conversation.from_template(template) is None


def test_template_cannot_reach_out_of_its_sandbox() -> None:
    with pytest.raises(StageError, match="cannot be rendered"):
        render("{{ messages.__class__.__base__.__subclasses__() }}", DIALOGUE)
