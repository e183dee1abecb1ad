"""What the files beside a vocabulary say of a tokenizer: tokenizer_config.json, added_tokens.json and
special_tokens_map.json, by the fields that transformers reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tokenizers import AddedToken

from mlcbuild.compiler.models.config import read_document
from mlcbuild.errors import StageError

CONFIG = "tokenizer_config.json"
_NAMED = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
_FLAGS = ("lstrip", "rstrip", "single_word", "normalized")
_MAX_TOKENS = 1 << 22


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizerSettings:
    """`class_name` is transformers' class without its ending "Fast", "" if none is named. `added` are tokens by their
    numbers, `special` texts by names such as `bos_token`, with those of `additional_special_tokens` by their texts.
    `flags` are the fields that are true or false."""

    where: str
    class_name: str
    added: Mapping[int, AddedToken]
    special: Mapping[str, str]
    flags: Mapping[str, bool]

    def flag(self, name: str, default: bool) -> bool:
        return self.flags.get(name, default)

    @property
    def names(self) -> dict[int, str]:
        """Texts of added tokens by their numbers."""
        return {number: token.content for number, token in self.added.items()}


def read_settings(directory: Path) -> TokenizerSettings:
    """The settings in a folder. Raises StageError for fields of other types."""
    path = directory / CONFIG
    document = read_document(path) if path.is_file() else {}
    beside = directory / "special_tokens_map.json"
    if "added_tokens_decoder" not in document and beside.is_file():  # the condition of transformers
        document = {**read_document(beside), **document}
    special = {name: text for name in _NAMED if (text := _text(document.get(name), path, name)) is not None}
    more = document.get("additional_special_tokens") or document.get("extra_special_tokens") or []
    for value in more.values() if isinstance(more, dict) else more if isinstance(more, list) else [more]:
        text = _text(value, path, "additional_special_tokens")
        if text is not None:
            special[text] = text
    class_name = document.get("tokenizer_class") or ""
    if not isinstance(class_name, str):
        raise StageError(f'{path}: "tokenizer_class" is {class_name!r}; it has to be a name')
    return TokenizerSettings(
        where=str(path),
        class_name=class_name.removesuffix("Fast"),
        added=_added(directory, document, set(special.values())),
        special=special,
        flags={name: value for name, value in document.items() if isinstance(value, bool)},
    )


def _added(directory: Path, document: Mapping[str, object], special: set[str]) -> dict[int, AddedToken]:
    path, stated = directory / CONFIG, document.get("added_tokens_decoder")
    found: dict[int, AddedToken] = {}
    if stated is None and (directory / "added_tokens.json").is_file():
        path = directory / "added_tokens.json"
        stated = {str(number): content for content, number in read_document(path).items()}
    if stated is not None and not isinstance(stated, dict):
        raise StageError(f'{path}: "added_tokens_decoder" has to be an object of tokens by their numbers')
    for key, value in (stated or {}).items():
        content = _text(value, path, "added_tokens_decoder")
        if not content or not key.isdecimal() or int(key) > _MAX_TOKENS:
            raise StageError(f"{path}: the added token {key!r} is {value!r}; it has to be a text, by its number")
        fields = value if isinstance(value, dict) else {}
        is_special = fields.get("special") is True or content in special
        flags = {name: fields[name] for name in _FLAGS if isinstance(fields.get(name), bool)}
        found[int(key)] = AddedToken(content, special=is_special, **{"normalized": not is_special, **flags})
    return dict(sorted(found.items()))


def _text(value: object, path: Path, name: str) -> str | None:
    """A token: a text, or an object with its `content`."""
    content = value.get("content") if isinstance(value, dict) else value
    if content is not None and not isinstance(content, str):
        raise StageError(f'{path}: "{name}" is {value!r}; it has to be a token')
    return content
