"""A package's tokenizer: prompts to token ids, and token ids to text as they come.

A character may take several tokens, so text is made from the tokens' bytes by a decoder that waits for the
rest of a character: what was shown never changes.
"""

from __future__ import annotations

import codecs
import functools
import json
import re
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from mlcbuild.errors import UsageError
from mlcbuild.runtime.chat_message import USER, ChatMessage
from mlcbuild.runtime.chat_template import render, special_tokens
from mlcbuild.runtime.package import TOKENIZER, ModelPackage

_SPACE = "\u2581"  # SentencePiece's mark for a space
_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


class PackageTokenizer:
    """Encodes prompts as transformers does with the same files. Raises UsageError for an unusable
    tokenizer."""

    def __init__(self, package: ModelPackage) -> None:
        from tokenizers import Tokenizer

        path = package.directory / TOKENIZER
        content = path.read_bytes()
        try:
            # Not from_file, which takes no path that is not UTF-8.
            self._tokenizer: Any = Tokenizer.from_buffer(content)
        except Exception as error:  # the library raises nothing more specific
            raise UsageError(f"{path} cannot be read: {error}", advice=("build the package again",)) from error
        # A file may say how texts are cut and filled up in training; transformers asks its callers instead.
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        document = json.loads(content)
        self._added = {int(token["id"]): token for token in document.get("added_tokens", [])}
        self._config = package.tokenizer_config
        info = package.chat_config.get("tokenizer_info") or {}
        self._byte_fallback = info.get("token_postproc_method") == "byte_fallback"
        self._strips_space = bool(info.get("strip_space_in_decode"))

    def encode_raw(self, text: str) -> list[int]:
        """A text to continue, with the tokens that the model expects at its beginning."""
        ids = self._encode(text, "the prompt", add_special_tokens=True)
        if not ids:
            bos = special_tokens(self._config).get("bos_token")
            number = self._tokenizer.token_to_id(bos) if bos else None
            if number is None:
                raise UsageError("the prompt is empty, and the model has no token to begin a text with")
            ids = [int(number)]
        return ids

    def encode_whole(self, text: str, *, at_most: int | None = None) -> list[int]:
        """A text that is complete, with the tokens that the model expects around it; what makes more than `at_most` is
        cut from its end. Raises UsageError for one without tokens."""
        if at_most is not None:
            self._tokenizer.enable_truncation(at_most)
        try:
            ids = self._encode(text, "the text", add_special_tokens=True)
        finally:
            self._tokenizer.no_truncation()
        if not ids:
            raise UsageError("the text is empty: the tokenizer makes no tokens of it")
        return ids

    def encode_chat(
        self, messages: Sequence[ChatMessage], *, clock: Callable[[], datetime] = datetime.now
    ) -> list[int]:
        """A conversation through the model's chat template, up to the beginning of the next answer. `clock` is what
        templates that name the date ask.

        Raises UsageError for a model without a template, StageError for a template that refuses the messages.
        """
        template = self._config.get("chat_template")
        if not isinstance(template, str):
            raise UsageError(
                "the model has no chat template: it continues text and answers none",
                advice=("use --raw with --prompt, or in a batch a prompt instead of messages",),
            )
        for message in messages:
            check_text(message.content, "the prompt" if message.role == USER else f"the {message.role} message")
        text = render(
            template,
            [{"role": message.role, "content": message.content} for message in messages],
            tokens=special_tokens(self._config),
            clock=clock,
        )
        ids = self._encode(text, "the text of the chat template", add_special_tokens=False)
        if not ids:
            raise UsageError(
                "the model's chat template makes no text of the prompt", advice=("use --raw to continue a text",)
            )
        return ids

    def _encode(self, text: str, what: str, *, add_special_tokens: bool) -> list[int]:
        check_text(text, what)
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=add_special_tokens).ids
        return ids

    def stream(self) -> TextStream:
        """A decoder for the tokens of one answer."""
        return TextStream(self)

    def token_bytes(self, token: int) -> bytes:
        """The bytes of a token in text; none for a special token, and for an id that stands for nothing."""
        added = self._added.get(token)
        if added is not None:
            return b"" if added.get("special") else str(added["content"]).encode()
        text: str | None = self._tokenizer.id_to_token(token)
        if text is None:
            return b""
        if self._byte_fallback:
            byte = _BYTE_TOKEN.fullmatch(text)
            return bytes([int(byte[1], 16)]) if byte else text.replace(_SPACE, " ").encode()
        table = _byte_level_table()
        if all(character in table for character in text):
            return bytes(table[character] for character in text)
        return text.encode()

    @property
    def strips_first_space(self) -> bool:
        """Whether the first space of a text is the tokenizer's own."""
        return self._strips_space


class TextStream:
    """Text from tokens as they come; bytes that are no UTF-8 become U+FFFD."""

    def __init__(self, tokenizer: PackageTokenizer) -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._strip = tokenizer.strips_first_space

    def add(self, token: int) -> str:
        """The characters that this token completes."""
        return self._stripped(self._decoder.decode(self._tokenizer.token_bytes(token)))

    def finish(self) -> str:
        """What is left: the replacement for a character that never was completed."""
        return self._stripped(self._decoder.decode(b"", final=True))

    def _stripped(self, text: str) -> str:
        if text and self._strip:
            self._strip = False
            return text.removeprefix(" ")
        return text


def check_text(text: str, what: str) -> None:
    """Raise UsageError for characters that no UTF-8 has. Python has them for bytes of arguments that are not UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        code = ord(text[error.start])
        shown = f"byte 0x{code - 0xDC00:02x}" if 0xDC80 <= code <= 0xDCFF else f"U+{code:04X}"
        raise UsageError(f"{what} is not UTF-8: it has {shown} after {error.start} characters") from None


@functools.cache
def _byte_level_table() -> dict[str, int]:
    """The byte behind each character of a byte-level vocabulary (GPT-2's `bytes_to_unicode`).

    Printable bytes of Latin-1 stand for themselves, the others, in order, for the characters from U+0100 on.
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    table = {chr(byte): byte for byte in printable}
    others = (byte for byte in range(256) if byte not in printable)
    table.update({chr(0x100 + number): byte for number, byte in enumerate(others)})
    return table
