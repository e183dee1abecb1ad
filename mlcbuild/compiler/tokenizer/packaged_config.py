"""A `tokenizer_config.json` as a package has it, from the files of a model's tokenizer."""

from __future__ import annotations

from pathlib import Path

from mlcbuild.compiler.models.config import read_document
from mlcbuild.errors import StageError
from mlcbuild.runtime.chat_template import special_tokens

CONFIG = "tokenizer_config.json"


def packaged_config(tokenizer: Path) -> dict[str, object]:
    """The configuration in a folder, with the chat template and the special tokens where every reader looks. Raises
    StageError for a template that is no text."""
    document = own_config(tokenizer)
    beside = tokenizer / "special_tokens_map.json"
    if "added_tokens_decoder" not in document and beside.is_file():  # the condition of transformers
        document |= special_tokens(read_document(beside))
    if (template := _template(tokenizer, document.get("chat_template"))) is not None:
        document["chat_template"] = template
    return document


def own_config(tokenizer: Path) -> dict[str, object]:
    """The configuration as the model has it; empty where there is none."""
    path = tokenizer / CONFIG
    return read_document(path) if path.is_file() else {}


def _template(tokenizer: Path, field: object) -> str | None:
    """The chat template: a file of its own (transformers since 4.52), else a field; the default of
    several."""
    alone = tokenizer / "chat_template.jinja"
    if alone.is_file():
        try:
            return alone.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            byte = error.object[error.start]
            raise StageError(f"{alone} is not UTF-8: it has byte {byte:#04x} at {error.start}") from None
    if isinstance(field, list):
        named = {item.get("name"): item.get("template") for item in field if isinstance(item, dict)}
        field = named.get("default")
    return field if isinstance(field, str) else None
