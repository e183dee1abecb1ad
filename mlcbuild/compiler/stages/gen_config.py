"""GenConfig: `mlc-chat-config.json`, what a serving engine reads of a model beside its library and weights.

Reads `model` (model.json of ConfigureModel), `config` (config.json, for token ids and sampling) and the directory
`tokenizer`. Writes `chat_config` and the directory `tokenizer_files`, the files that a package holds. A value comes
from the model, else generation_config.json, else config.json, else MLC-LLM's defaults.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from tokenizers import Tokenizer

from mlcbuild.compiler.models.config import ConfigReader, read_document
from mlcbuild.compiler.models.description import read_model
from mlcbuild.compiler.quantization.scheme import QuantizationScheme
from mlcbuild.compiler.tokenizer import conversation
from mlcbuild.compiler.tokenizer.packaged_config import CONFIG, own_config, packaged_config
from mlcbuild.compiler.tokenizer.vocabulary import read_tokenizer, vocabulary_of
from mlcbuild.errors import StageError
from mlcbuild.runtime.chat_template import special_tokens

VERSION = "0.1.0"  # of the file's form, MLC-LLM's number
_DEFAULTS = {
    "temperature": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "repetition_penalty": 1.0,
    "top_p": 1.0,
}
_TOKEN_DEFAULTS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
_FILES = ("tokenizer.model", "tokenizer.json", "vocab.json", "merges.txt", "added_tokens.json", CONFIG)


def run(
    *,
    model: Path,
    config: Path,
    tokenizer: Path,
    chat_config: Path,
    tokenizer_files: Path,
    scheme: QuantizationScheme,
) -> None:
    """`scheme` is a plug-in. Raises StageError for a tokenizer that cannot be read, or has tokens beyond the model's
    vocabulary."""
    document = read_document(config)
    description = read_model(model)
    sizes = description.sizes
    generation_file = tokenizer / "generation_config.json"
    generation = read_document(generation_file) if generation_file.is_file() else {}
    readers = [ConfigReader(generation, str(generation_file)), ConfigReader(document, str(config))]
    if isinstance(document.get("text_config"), dict):  # of a vision-language model
        readers.append(readers[-1].table("text_config"))
    tokenizer_config = packaged_config(tokenizer)
    configuration = _json(tokenizer_config)
    files = [name for name in _FILES if (tokenizer / name).is_file() or (name == CONFIG and tokenizer_config)]
    vocabulary = read_tokenizer(tokenizer / "tokenizer.json")
    _check_rows(vocabulary, description.vocab_size, tokenizer / "tokenizer.json")
    own = {f"{name}_id": vocabulary.token_to_id(text) for name, text in special_tokens(tokenizer_config).items()}
    tokens = {name: _token_ids(name, readers, own.get(name)) for name in _TOKEN_DEFAULTS}
    chat: dict[str, object] = {
        "version": VERSION,
        "model_type": description.model_type,
        "quantization": scheme.name,
        "model_config": description.model_config,
        "vocab_size": description.vocab_size,
        "context_window_size": sizes.context_window_size,
        "sliding_window_size": sizes.sliding_window_size,
        "prefill_chunk_size": sizes.prefill_chunk_size,
        "attention_sink_size": sizes.attention_sink_size,
        "tensor_parallel_shards": sizes.tensor_parallel_shards,
        "pipeline_parallel_stages": 1,
        "active_vocab_size": vocabulary_of(vocabulary).active_size,
        **{name: _sampling(name, readers) for name in _DEFAULTS},
        "tokenizer_files": files,
        "tokenizer_info": _tokenizer_info(vocabulary),
        "conv_template": _conversation(tokenizer_config, tokens["eos_token_id"], vocabulary).document(),
        **{name: ids[0] if len(ids) == 1 else ids for name, ids in tokens.items()},
        "model_task": "",
        "embedding_metadata": None,
        **description.task,
    }
    chat_config.write_bytes(_json(chat))
    tokenizer_files.mkdir(parents=True, exist_ok=True)
    for name in files:
        if name == CONFIG and tokenizer_config != own_config(tokenizer):
            (tokenizer_files / name).write_bytes(configuration)
        else:
            shutil.copyfile(tokenizer / name, tokenizer_files / name)


def _json(document: Mapping[str, object]) -> bytes:
    try:
        return (json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode()
    except UnicodeEncodeError as error:
        raise StageError(
            f"the tokenizer's configuration has the character U+{ord(error.object[error.start]):04X}, half of a pair: "
            "it is not text"
        ) from None


def _check_rows(vocabulary: Tokenizer, rows: int, path: Path) -> None:
    """Raises StageError for a token beyond the `rows` of the embedding."""
    by_number = sorted((number, token) for token, number in vocabulary.get_vocab(with_added_tokens=True).items())
    beyond = [(number, token) for number, token in by_number if number >= rows]
    if beyond:
        shown = ", ".join(f"{json.dumps(token, ensure_ascii=False)} ({number})" for number, token in beyond[:3])
        more = f" and {len(beyond) - 3} more" if len(beyond) > 3 else ""
        added = vocabulary.get_added_tokens_decoder()
        raise StageError(
            f"{path} has tokens beyond the model's embedding, whose rows are 0 to {rows - 1}: {shown}{more}",
            advice=(
                "if the model was never trained with them, remove them from added_tokens in tokenizer.json",
                "if it was, the checkpoint lacks their rows: in transformers, resize_token_embeddings makes them",
            )
            if all(number in added for number, _ in beyond)
            else ("the tokenizer and the weights are of two models",),
        )


def _sampling(name: str, readers: Sequence[ConfigReader]) -> float:
    for reader in readers:
        if reader.has(name):
            return reader.number(name, low=-1e3, high=1e3)
    return _DEFAULTS[name]


def _token_ids(name: str, readers: Sequence[ConfigReader], own: int | None) -> list[int]:
    """Token ids of one meaning: models may end a text in several ways. `own` is the tokenizer's, if it has one."""
    for reader in readers:
        value = reader.document.get(name)
        if value is None:
            continue
        ids = value if isinstance(value, list) else [value]
        numbers = [number for number in ids if type(number) is int]
        if len(numbers) != len(ids):
            raise reader.fail(name, f"is {value!r}; it has to be a token id, or a list of them")
        if numbers := [number for number in numbers if number >= 0]:  # A negative one, such as -1, is none.
            return numbers
    return [_TOKEN_DEFAULTS[name] if own is None else own]


def _tokenizer_info(vocabulary: Tokenizer) -> dict[str, object]:
    """How tokens become text: by bytes behind printable characters, or with bytes as tokens of last
    resort."""
    document = json.loads(vocabulary.to_str())
    decoders = _steps(document.get("decoder"), "decoders")
    steps = {step.get("type") for step in decoders}
    byte_fallback = "ByteFallback" in steps and "ByteLevel" not in steps
    normalizers = _steps(document.get("normalizer"), "normalizers")
    return {
        "token_postproc_method": "byte_fallback" if byte_fallback else "byte_level",
        "prepend_space_in_encode": any(step.get("type") == "Prepend" for step in normalizers),
        "strip_space_in_decode": any(step.get("type") == "Strip" and step.get("start") for step in decoders),
    }


def _steps(step: Mapping[str, object] | None, members: str) -> list[Mapping[str, object]]:
    if step is None:
        return []
    inner = step.get(members)
    return list(inner) if isinstance(inner, list) else [step]


def _conversation(document: Mapping[str, object], ends: list[int], vocabulary: Tokenizer) -> conversation.Conversation:
    """From a tokenizer_config.json. `ends` are the tokens that end a text."""
    tokens = special_tokens(document)
    field = document.get("chat_template")
    template = field if isinstance(field, str) else None
    bos = tokens.get("bos_token")
    bos_id = vocabulary.token_to_id(bos) if bos else None
    stop = list(dict.fromkeys([*ends, *_ends_of_answers(template, tokens, vocabulary)]))
    if template is not None:
        found = conversation.from_template(template, tokens=tokens, bos_token_id=bos_id, stop_token_ids=stop)
        if found is not None:
            return found
        print("the chat template has no equal among MLC-LLM's conversation templates: plain text is declared")
    adds_bos = document.get("add_bos_token") is True
    return conversation.plain(bos_token_id=bos_id if adds_bos else None, stop_token_ids=stop)


def _ends_of_answers(template: str | None, tokens: Mapping[str, str], vocabulary: Tokenizer) -> list[int]:
    """The tokens that end an answer beside those that end a text: the tokenizer's own, and the template's.

    Many checkpoints name only the end of a text as `eos_token_id`, and their models end a turn with another token.
    """
    texts = [tokens["eos_token"]] if "eos_token" in tokens else []
    if template is not None:
        after = conversation.text_after_an_answer(template, tokens=tokens).lstrip()
        special = [token.content for token in vocabulary.get_added_tokens_decoder().values() if token.special]
        texts += sorted((text for text in special if text and after.startswith(text)), key=len)[-1:]
    return [number for text in texts if (number := vocabulary.token_to_id(text)) is not None]
