"""The arguments that a model_package takes: `mlcbuild run LABEL -- --prompt "…"`."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.main import get_command

from mlcbuild.cli.arguments.help_format import CONTEXT, HelpCommand, examples
from mlcbuild.errors import UsageError

DEFAULT_MAX_TOKENS = 128


class LogitsOf(enum.StrEnum):
    """The values of `--logits-of`: which tokens of a prompt."""

    LAST = "last"
    ALL = "all"


@dataclass(frozen=True, kw_only=True)
class GenerationOptions:
    """What to generate: of `prompt`, `chat`, `embed` and `batch` one is given.

    `max_tokens` None means the default of what is done; `threads` 0 one per free core; `seed` None a random one.
    """

    prompt: str | None = None
    chat: bool = False
    embed: tuple[str, ...] = ()
    batch: Path | None = None
    output_file: Path | None = None
    vectors: Path | None = None
    truncate: bool = False
    raw: bool = False
    system: str = ""
    max_tokens: int | None = None
    context_size: int | None = None
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    logits: Path | None = None
    logits_of: LogitsOf | None = None
    max_batch_size: int | None = None
    max_total_tokens: int | None = None
    threads: int = 0
    stats: bool = False

    @property
    def given(self) -> frozenset[str]:
        """The options that say something else than their defaults."""
        told = {
            "--prompt": self.prompt is not None,
            "--chat": self.chat,
            "--embed": bool(self.embed),
            "--batch": self.batch is not None,
            "--raw": self.raw,
            "--system": bool(self.system),
            "--context-size": self.context_size is not None,
            "--output-file": self.output_file is not None,
            "--vectors": self.vectors is not None,
            "--truncate": self.truncate,
            "--max-tokens": self.max_tokens is not None,
            "--temperature": self.temperature > 0,
            "--top-p": self.top_p < 1,
            "--seed": self.seed is not None,
            "--stop": bool(self.stop),
            "--max-batch-size": self.max_batch_size is not None,
            "--max-total-tokens": self.max_total_tokens is not None,
            "--logits": self.logits is not None,
            "--logits-of": self.logits_of is not None,
            "--stats": self.stats,
        }
        return frozenset(name for name, is_given in told.items() if is_given)


_MODES = ("--prompt", "--chat", "--embed", "--batch")
# An option → what it is for, where that is not everything.
_IS_FOR: dict[str, tuple[str, ...]] = {
    "--raw": ("--prompt",),
    "--system": ("--prompt", "--chat"),
    "--context-size": ("--chat",),
    "--output-file": ("--batch",),
    "--vectors": ("--embed", "--batch"),
    "--truncate": ("--embed", "--batch"),
    "--max-tokens": ("--prompt", "--chat", "--batch"),
    "--temperature": ("--prompt", "--chat", "--batch"),
    "--top-p": ("--prompt", "--chat", "--batch"),
    "--seed": ("--prompt", "--chat", "--batch"),
    "--stop": ("--prompt", "--chat", "--batch"),
    "--max-batch-size": ("--batch",),
    "--max-total-tokens": ("--batch",),
    "--logits": ("--prompt", "--batch"),
    "--logits-of": ("--prompt", "--batch"),
    "--stats": ("--prompt", "--chat"),
}

TEXT_OPTIONS = (
    *("--max-tokens", "--temperature", "--top-p", "--seed", "--stop", "--logits", "--logits-of"),
    *("--max-batch-size", "--max-total-tokens"),
)
"""Those for models that generate text, beside the modes."""
VECTOR_OPTIONS = ("--embed", "--vectors", "--truncate")
"""Those for models that make embeddings."""


def _generate(
    prompt: Annotated[
        str | None, typer.Option("--prompt", metavar="TEXT", show_default=False, help="Answer one prompt.")
    ] = None,
    chat: Annotated[
        bool,
        typer.Option("--chat", help="Talk in turns: on a terminal, or a prompt per line of standard input."),
    ] = False,
    embed: Annotated[
        list[str] | None,
        typer.Option(
            "--embed",
            metavar="TEXT",
            show_default=False,
            help="Print the vector of a text, with a model of embeddings. Repeatable.",
        ),
    ] = None,
    batch: Annotated[
        Path | None,
        typer.Option(
            "--batch", metavar="FILE", show_default=False, help="Answer requests, a JSON object per line; - is stdin."
        ),
    ] = None,
    output_file: Annotated[
        Path | None,
        typer.Option(
            "--output-file",
            metavar="FILE",
            show_default=False,
            help="Where results of a --batch go. Default: standard output.",
        ),
    ] = None,
    vectors: Annotated[
        Path | None,
        typer.Option(
            "--vectors",
            metavar="FILE",
            show_default=False,
            help="Write all vectors to FILE.npy, too: (texts, size) in float32.",
        ),
    ] = None,
    truncate: Annotated[
        bool, typer.Option("--truncate", help="Cut texts that are too long for a vector, instead of refusing them.")
    ] = False,
    raw: Annotated[
        bool, typer.Option("--raw", help="Continue the prompt instead of answering it through the chat template.")
    ] = False,
    system: Annotated[
        str, typer.Option("--system", metavar="TEXT", show_default=False, help="The system message.")
    ] = "",
    max_tokens: Annotated[
        int | None,
        typer.Option(
            "--max-tokens",
            metavar="N",
            min=0,
            show_default=False,
            help="End an answer after N tokens. Default: 128; with --chat, as many as there is room for.",
        ),
    ] = None,
    context_size: Annotated[
        int | None,
        typer.Option(
            "--context-size",
            metavar="N",
            min=2,
            show_default=False,
            help="Tokens of a --chat that the model sees. Default: its context, at most 8192.",
        ),
    ] = None,
    temperature: Annotated[
        float,
        typer.Option("--temperature", metavar="T", min=0.0, help="0 always takes the most likely token."),
    ] = 0.0,
    top_p: Annotated[
        float,
        typer.Option(
            "--top-p",
            metavar="P",
            min=0.0,
            max=1.0,
            help="Sample from the most likely tokens that sum to P.",
        ),
    ] = 1.0,
    seed: Annotated[
        int | None,
        typer.Option("--seed", metavar="N", min=0, show_default=False, help="Seed of the sampling."),
    ] = None,
    stop: Annotated[
        list[str] | None,
        typer.Option("--stop", metavar="TEXT", show_default=False, help="End an answer before TEXT. Repeatable."),
    ] = None,
    logits: Annotated[
        Path | None,
        typer.Option(
            "--logits",
            metavar="FILE",
            show_default=False,
            help="Write the prompt's logits to FILE.npz, with its tokens, or FILE.npy, without.",
        ),
    ] = None,
    logits_of: Annotated[
        LogitsOf | None,
        typer.Option(
            "--logits-of",
            metavar="last|all",
            show_default=False,
            help="The logits after the prompt's last token, or after each. Default: last.",
        ),
    ] = None,
    max_batch_size: Annotated[
        int | None,
        typer.Option(
            "--max-batch-size",
            metavar="N",
            min=1,
            show_default=False,
            help="Requests of a --batch at a time. Default: the library's max_batch_size.",
        ),
    ] = None,
    max_total_tokens: Annotated[
        int | None,
        typer.Option(
            "--max-total-tokens",
            metavar="N",
            min=1,
            show_default=False,
            help="Tokens in the KV cache of a --batch. Default: 8192.",
        ),
    ] = None,
    threads: Annotated[
        int | None,
        typer.Option("--threads", metavar="N", min=1, show_default=False, help="Threads. Default: one per free core."),
    ] = None,
    stats: Annotated[
        bool, typer.Option("--stats", help="Print the speed to standard error after each answer.")
    ] = False,
) -> GenerationOptions:
    """Generate text with a model_package: one answer, a conversation, or a batch of answers. A model of embeddings
    makes vectors of texts instead.

    An answer appears as it is generated. Give one of --prompt, --chat, --embed and --batch.
    """
    return GenerationOptions(
        prompt=prompt,
        chat=chat,
        embed=tuple(embed or ()),
        batch=batch,
        output_file=output_file,
        vectors=vectors,
        truncate=truncate,
        raw=raw,
        system=system,
        max_tokens=max_tokens,
        context_size=context_size,
        temperature=temperature,
        top_p=top_p,
        seed=seed,
        stop=tuple(stop or ()),
        logits=logits,
        logits_of=logits_of,
        max_batch_size=max_batch_size,
        max_total_tokens=max_total_tokens,
        threads=threads or 0,
        stats=stats,
    )


def generation_command(label: str) -> Any:
    """What reads the arguments, as a command of click."""
    app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False)
    app.command(
        cls=HelpCommand,
        context_settings=CONTEXT,
        epilog=examples(
            f'mlcbuild run {label} -- --prompt "What is the capital of France?"',
            f'mlcbuild run {label} -- --raw --prompt "Once" --temperature 0.7',
            f'mlcbuild run {label} -- --chat --system "Answer briefly."',
            f"mlcbuild run {label} -- --batch in.jsonl --output-file out.jsonl",
            f'mlcbuild run {label} -- --embed "A text" --embed "Another"',
        ),
    )(_generate)
    return get_command(app)


def parse_generation_options(label: str, arguments: Sequence[str]) -> GenerationOptions | None:
    """Read the arguments. Prints help and returns None if they ask for it. Raises UsageError."""
    try:
        result: Any = generation_command(label).main(
            args=list(arguments), prog_name=f"mlcbuild run {label} --", standalone_mode=False
        )
    except typer.TyperException as error:
        from mlcbuild.cli.arguments.usage_errors import usage_error

        raise usage_error(error) from None
    if not isinstance(result, GenerationOptions):
        return None
    _check(result, see=f"see mlcbuild run {label} -- --help")
    return result


def _check(options: GenerationOptions, *, see: str) -> None:
    from mlcbuild.runtime.tokenizer import check_text

    given = options.given
    modes = [mode for mode in _MODES if mode in given]
    if not modes:
        raise UsageError("nothing says what to generate: give --prompt, --chat, --embed or --batch", advice=(see,))
    if len(modes) > 1:
        raise UsageError(f"{' and '.join(modes)} exclude each other", advice=(see,))
    for name, meant in _IS_FOR.items():
        if name in given and modes[0] not in meant:
            raise UsageError(f"{name} is for {' and '.join(meant)}, not for {modes[0]}", advice=(see,))
    if options.raw and options.system:
        raise UsageError("--raw takes no --system: it continues the text as it stands", advice=(see,))
    if options.logits_of and not options.logits:
        raise UsageError("--logits-of says which logits --logits writes, and there is no --logits", advice=(see,))
    if options.max_tokens == 0 and (options.chat or (options.prompt is not None and not options.logits)):
        raise UsageError("--max-tokens 0 generates nothing; it is for --logits and --batch", advice=(see,))
    if "" in options.stop:
        raise UsageError("--stop has an empty text", advice=(see,))
    if options.logits is not None:
        from mlcbuild.runtime.logits_names import check_logits_path

        check_logits_path(options.logits, several=options.batch is not None)
    if options.batch is not None and str(options.batch) != "-" and not options.batch.exists():
        raise UsageError(f"--batch: there is no file {options.batch}")
    if options.vectors is not None and options.vectors.suffix != ".npy":
        raise UsageError(f"--vectors: {options.vectors} does not end in .npy")
    files = (("--output-file", options.output_file), ("--logits", options.logits), ("--vectors", options.vectors))
    for name, path in files:
        if path is not None and not path.absolute().parent.is_dir():
            raise UsageError(f"{name}: there is no directory {path.parent}")
    for text, what in ((options.prompt or "", "the prompt"), (options.system, "the system message")):
        check_text(text, what)
    for text in options.stop:
        check_text(text, "the text of --stop")
    for text in options.embed:
        check_text(text, "the text of --embed")
