"""The arguments that a model_package takes: `mlcbuild run LABEL -- --prompt "…"`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer
from typer.main import get_command

from mlcbuild.cli.arguments.help_format import CONTEXT, HelpCommand, examples


@dataclass(frozen=True, kw_only=True)
class GenerationOptions:
    """What to generate. `threads` 0 means one per core; `seed` None means a random one."""

    prompt: str
    raw: bool = False
    max_tokens: int = 128
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int | None = None
    threads: int = 0
    stats: bool = False


def _generate(
    prompt: Annotated[str, typer.Option("--prompt", metavar="TEXT", show_default=False, help="The prompt. Required.")],
    raw: Annotated[
        bool, typer.Option("--raw", help="Continue the text instead of answering it through the chat template.")
    ] = False,
    max_tokens: Annotated[int, typer.Option("--max-tokens", metavar="N", min=1, help="Stop after N tokens.")] = 128,
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
    threads: Annotated[
        int | None,
        typer.Option("--threads", metavar="N", min=1, show_default=False, help="Threads. Default: one per core."),
    ] = None,
    stats: Annotated[bool, typer.Option("--stats", help="Print the speed to standard error at the end.")] = False,
) -> GenerationOptions:
    """Generate text with a model_package: one answer, not a chat. Tokens appear as they come."""
    return GenerationOptions(
        prompt=prompt,
        raw=raw,
        max_tokens=max_tokens,
        temperature=temperature,
        top_p=top_p,
        seed=seed,
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
    from mlcbuild.runtime.tokenizer import check_text

    check_text(result.prompt, "the prompt")
    return result
