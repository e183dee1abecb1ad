"""`mlcbuild run LABEL -- --chat`: a conversation, on a terminal or through a pipe.

Answers go to standard output and everything else to standard error. On a terminal an error ends a turn; in a pipe it
ends the conversation, since nobody reads it before the next line is sent.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlcbuild.cli.arguments.options import GlobalOptions
from mlcbuild.cli.exit_codes import ExitCode
from mlcbuild.cli.output.errors import error_lines
from mlcbuild.cli.output.text import plural
from mlcbuild.cli.run.chat_commands import HELP, Command, read_command
from mlcbuild.cli.run.chat_lines import ChatLines
from mlcbuild.cli.run.generation import sampling_of, statistics_line, stream
from mlcbuild.cli.run.generation_options import GenerationOptions
from mlcbuild.cli.run.loading import loading
from mlcbuild.errors import MlcbuildError

if TYPE_CHECKING:
    from mlcbuild.runtime.chat import Chat
    from mlcbuild.runtime.generate import GenerationStatistics

_STOPPED_AT_ONCE = "stopped before any text: not part of the conversation"


def chat(package: Path, wanted: GenerationOptions, options: GlobalOptions) -> ExitCode:
    """Answer messages until their end. Raises UsageError for a package without a chat template, and in a pipe whatever
    a turn raises."""
    lines = ChatLines(options.environment)
    conversation = Conversation(open_chat(package, wanted, options), wanted, options, interactive=lines.interactive)
    if lines.interactive:
        conversation.tell("/help lists the commands; Ctrl-C stops an answer, Ctrl-D ends")
    try:
        while (message := _next_message(lines, conversation)) is not None:
            try:
                if not conversation.take(message):
                    break
            except MlcbuildError as error:
                if not lines.interactive:
                    raise
                conversation.tell(*error_lines(error, style=options.style(sys.stderr)))
    finally:
        lines.close()
    return ExitCode.OK


def open_chat(package: Path, wanted: GenerationOptions, options: GlobalOptions) -> Chat:
    """A conversation with a package that has not begun."""
    from mlcbuild.runtime.chat import Chat
    from mlcbuild.runtime.chat_message import one_turn
    from mlcbuild.runtime.engine import Engine
    from mlcbuild.runtime.package import ModelPackage
    from mlcbuild.runtime.tokenizer import PackageTokenizer

    tokenizer = PackageTokenizer(ModelPackage.open(package))
    tokenizer.encode_chat(one_turn("?", system=wanted.system))  # a template that fails is told before weights are read
    with loading(options) as loaded:
        engine = Engine(package, threads=wanted.threads, loaded=loaded)
    return Chat(
        engine,
        tokenizer,
        system=wanted.system,
        context_size=wanted.context_size,
        max_tokens=wanted.max_tokens,
        sampling=sampling_of(wanted),
        stop_strings=wanted.stop,
    )


def _next_message(lines: ChatLines, conversation: Conversation) -> str | None:
    while True:
        try:
            return lines.next_message()
        except KeyboardInterrupt:
            print()
            conversation.tell("Ctrl-D or /exit ends")


class Conversation:
    """What is done with each line."""

    def __init__(self, chat: Chat, wanted: GenerationOptions, options: GlobalOptions, *, interactive: bool) -> None:
        self._chat = chat
        self._shows_statistics = wanted.stats
        self._note = options.note
        self._interactive = interactive
        self._last: GenerationStatistics | None = None

    def tell(self, *lines: str) -> None:
        print("\n".join(lines), file=sys.stderr, flush=True)

    def take(self, message: str) -> bool:
        """Answer a message, or carry out a command; returns whether the conversation goes on."""
        command, text = read_command(message)
        match command:
            case None if text.strip():
                self._answer(text)
            case Command.HELP:
                self.tell(*HELP)
            case Command.RESET:
                self._chat.reset()
                self.tell("the conversation begins anew")
            case Command.SYSTEM:
                self._chat.system = text
                self.tell("the system message is set" if text else "there is no system message now")
            case Command.UNDO:
                asked = self._chat.undo()
                self.tell("there is no turn to take back" if asked is None else f"taken back: {_first_line(asked)}")
            case Command.RETRY:
                asked = self._chat.undo()
                if asked is None:
                    self.tell("there is no turn to answer again")
                else:
                    self._answer(asked)
            case Command.STATS:
                self.tell(*self._statistics())
            case Command.EXIT:
                return False
        return True

    def _answer(self, text: str) -> None:
        dropped = self._chat.dropped_turns
        try:
            turn = self._chat.ask(text)
        except KeyboardInterrupt:  # while the prompt is made, which changes nothing
            if not self._interactive:
                raise
            self._note(_STOPPED_AT_ONCE)
            return
        if self._chat.dropped_turns > dropped:
            turns = len(self._chat.messages) // 2
            self._note(f"the context is full: the model no longer sees {self._chat.dropped_turns} of {turns} turns")
        with _interrupts(turn.generation.stop) if self._interactive else nullcontext():
            stream(turn, sys.stdout)
        self._last = turn.generation.statistics
        if turn.generation.stopped:
            self._note("stopped" if turn.generation.answer.text else _STOPPED_AT_ONCE)
        elif turn.context_is_full:
            self._note("the answer is cut: the context is full")
        if self._shows_statistics:
            self.tell(statistics_line(self._last))

    def _statistics(self) -> Iterator[str]:
        if self._last is not None:
            yield statistics_line(self._last)
        turns = len(self._chat.messages) // 2
        bound = f" of {self._chat.context_size}" if self._chat.is_bounded else ""
        yield f"{plural(turns, 'turn')} · {self._chat.tokens}{bound} tokens in the context"


@contextmanager
def _interrupts(stop: Any) -> Iterator[None]:
    """Let Ctrl-C call `stop` while the block runs: an exception could leave the model between two tokens."""
    before = signal.signal(signal.SIGINT, lambda *_: stop())
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _first_line(text: str) -> str:
    first, *more = text.splitlines() or [""]
    return f"{first} …" if more else first
