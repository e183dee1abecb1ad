"""A conversation says what its messages say, and computes no more than what is new."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from mlcbuild.errors import StageError, UsageError
from mlcbuild.runtime.chat import Chat
from mlcbuild.runtime.chat_message import ASSISTANT, SYSTEM, USER, ChatMessage
from mlcbuild.runtime.engine import Engine
from mlcbuild.runtime.package import ModelPackage
from mlcbuild.runtime.sampling import Sampling
from mlcbuild.runtime.tokenizer import PackageTokenizer

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def engine(tiny_package: Path) -> Engine:
    return Engine(tiny_package, threads=2)


@pytest.fixture
def tokenizer(tiny_package: Path) -> PackageTokenizer:
    return PackageTokenizer(ModelPackage.open(tiny_package))


def said(role: str, content: str) -> ChatMessage:
    return ChatMessage(role=role, content=content)


def test_each_turn_answers_the_whole_conversation_and_prefills_what_is_new(
    engine: Engine, tokenizer: PackageTokenizer
) -> None:
    chat = Chat(engine, tokenizer, system="Be", max_tokens=5)
    first = chat.ask("hello")
    answer = "".join(first)
    assert first.generation.prompt == tokenizer.encode_chat([said(SYSTEM, "Be"), said(USER, "hello")])
    assert first.generation.statistics.kept_tokens == 0
    assert chat.messages == [said(USER, "hello"), said(ASSISTANT, answer)]

    second = chat.ask("more")
    list(second)
    messages = [said(SYSTEM, "Be"), *chat.messages[:3]]
    assert second.generation.prompt == tokenizer.encode_chat(messages)
    assert second.generation.statistics.kept_tokens >= len(first.generation.prompt)
    whole = engine.greedy_tokens(second.generation.prompt, 5)
    assert second.generation.tokens == whole[: len(second.generation.tokens)]


def test_a_turn_can_be_taken_back_and_answered_again(engine: Engine, tokenizer: PackageTokenizer) -> None:
    chat = Chat(engine, tokenizer, max_tokens=5)
    answers = ["".join(chat.ask(text)) for text in ("ab", "cd")]
    assert chat.undo() == "cd"
    assert "".join(chat.ask("cd")) == answers[1]
    chat.reset()
    assert chat.messages == []
    assert chat.undo() is None
    assert "".join(chat.ask("ab")) == answers[0]


def test_another_system_message_holds_from_the_next_turn_on(engine: Engine, tokenizer: PackageTokenizer) -> None:
    chat = Chat(engine, tokenizer, max_tokens=3)
    list(chat.ask("ab"))
    chat.system = "Be"
    turn = chat.ask("cd")
    assert turn.generation.prompt == tokenizer.encode_chat([said(SYSTEM, "Be"), *chat.messages, said(USER, "cd")])
    list(turn)
    assert turn.generation.statistics.kept_tokens == 1  # the special token before the first message


def test_the_oldest_turns_are_dropped_where_the_context_is_full(engine: Engine, tokenizer: PackageTokenizer) -> None:
    chat = Chat(engine, tokenizer, system="Be", max_tokens=4)
    dropped = []
    for number in range(8):
        turn = chat.ask(f"{number}" * 8)
        list(turn)
        dropped.append(chat.dropped_turns)
        messages = [said(SYSTEM, "Be"), *chat.messages[2 * chat.dropped_turns : -1]]
        assert turn.generation.prompt == tokenizer.encode_chat(messages)
        assert len(turn.generation.prompt) + 4 <= 64
    assert dropped[:3] == [0, 0, 0]
    assert len(set(dropped)) > 2
    assert len(set(dropped)) < 6, "not at every turn"
    assert dropped == sorted(dropped)
    for _ in range(8):
        chat.undo()
    assert chat.dropped_turns == 0


def test_a_message_that_does_not_fit_alone_is_refused_and_changes_nothing(
    engine: Engine, tokenizer: PackageTokenizer
) -> None:
    chat = Chat(engine, tokenizer, max_tokens=4)
    answer = "".join(chat.ask("ab"))
    with pytest.raises(UsageError, match="the message makes a prompt of 71 tokens, and the context has 64"):
        chat.ask("x" * 70)
    assert chat.messages == [said(USER, "ab"), said(ASSISTANT, answer)]
    assert chat.dropped_turns == 0
    turn = chat.ask("y" * 62)
    list(turn)
    assert len(turn.generation.tokens) <= 1
    assert turn.context_is_full


def test_a_smaller_context_is_kept_to(engine: Engine, tokenizer: PackageTokenizer) -> None:
    chat = Chat(engine, tokenizer, context_size=20, sampling=Sampling(temperature=5.0, seed=1))
    turn = chat.ask("ab")
    list(turn)
    assert len(turn.generation.prompt) + len(turn.generation.tokens) <= 20
    with pytest.raises(UsageError, match="context of 65 tokens is larger than the model's, 64"):
        Chat(engine, tokenizer, context_size=65)


def test_a_turn_that_is_stopped_keeps_its_text_and_one_without_text_is_none(
    engine: Engine, tokenizer: PackageTokenizer
) -> None:
    chat = Chat(engine, tokenizer, sampling=Sampling(temperature=5.0, seed=2))
    turn = chat.ask("ab")
    pieces = []
    for piece in turn:
        pieces.append(piece)
        turn.generation.stop()
    assert chat.messages == [said(USER, "ab"), said(ASSISTANT, "".join(pieces))]
    turn = chat.ask("cd")
    turn.generation.stop()
    assert list(turn) == []
    assert len(chat.messages) == 2


def test_a_template_that_rewrites_earlier_turns_goes_back_to_where_they_differ(
    tiny_package: Path, tmp_path: Path
) -> None:
    """As templates do that leave the model's thoughts out of earlier answers."""
    other = tmp_path / "other"
    shutil.copytree(tiny_package, other)
    template = "{% for m in messages %}<|end|>{{ m.content if m.role == 'user' else '(left out)' }}{% endfor %}"
    (other / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))
    engine = Engine(other, threads=2)
    tokenizer = PackageTokenizer(engine.package)
    chat = Chat(engine, tokenizer, max_tokens=4)
    list(chat.ask("ab"))
    turn = chat.ask("cd")
    list(turn)
    assert turn.generation.prompt == tokenizer.encode_chat(chat.messages[:3])
    assert turn.generation.statistics.kept_tokens == 3
    whole = engine.greedy_tokens(turn.generation.prompt, 4)
    assert turn.generation.tokens == whole[: len(turn.generation.tokens)]


def test_a_template_that_refuses_a_message_changes_nothing(tiny_package: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(tiny_package, other)
    template = (
        "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system') }}{% endif %}a{% endfor %}"
    )
    (other / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))
    engine = Engine(other, threads=2)
    chat = Chat(engine, PackageTokenizer(engine.package), max_tokens=4)
    list(chat.ask("ab"))
    chat.system = "Be"
    with pytest.raises(StageError, match="no system"):
        chat.ask("cd")
    assert len(chat.messages) == 2
