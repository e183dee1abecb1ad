"""Generates text with a built model package, and writes it as it comes."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from mlcbuild.cli.arguments.options import GlobalOptions
from mlcbuild.cli.exit_codes import ExitCode
from mlcbuild.cli.output.errors import report_run_error
from mlcbuild.cli.output.standard_streams import ReaderLeftError
from mlcbuild.cli.run.generation_options import GenerationOptions
from mlcbuild.errors import MlcbuildError

if TYPE_CHECKING:
    from mlcbuild.runtime.generate import GenerationStatistics

_SEED_BITS = 32


def generate_text(package: Path, wanted: GenerationOptions, options: GlobalOptions) -> ExitCode:
    """Write the answer to standard output and, with `--stats`, its speed to standard error.

    Raises UsageError for a prompt that is too long, and LocalEnvironmentError if TVM does not load.
    """
    from mlcbuild.runtime.generate import generate

    style = options.style(sys.stderr)
    seed = secrets.randbits(_SEED_BITS) if wanted.seed is None else wanted.seed
    try:
        generation = generate(
            package,
            wanted.prompt,
            raw=wanted.raw,
            max_tokens=wanted.max_tokens,
            temperature=wanted.temperature,
            top_p=wanted.top_p,
            seed=seed,
            threads=wanted.threads,
        )
        stream(generation, sys.stdout)
    except (MlcbuildError, ReaderLeftError):
        raise
    except Exception as error:
        return report_run_error(error, options)
    if generation.context_is_full:
        print(f"{style.warning('note:')} the answer is cut: the model's context is full", file=sys.stderr)
    if wanted.stats:
        line = statistics_line(generation.statistics)
        print(f"{line} · seed {seed}" if wanted.temperature > 0 else line, file=sys.stderr)
    return ExitCode.OK


def stream(pieces: Iterable[str], output: TextIO) -> None:
    """Write each piece at once, and a line end after the last, also if an exception ends the text early."""
    last = ""
    try:
        for piece in pieces:
            output.write(piece)
            output.flush()
            last = piece or last
    finally:
        if not last.endswith("\n"):
            output.write("\n")
            output.flush()


def statistics_line(statistics: GenerationStatistics) -> str:
    """`prompt 32 tokens · 240.1 tokens/s · then 127 tokens · 61.2 tokens/s`"""
    return (
        f"prompt {statistics.prompt_tokens} tokens · {statistics.prefill_tokens_per_second:.1f} tokens/s"
        f" · then {statistics.decoded_tokens} tokens · {statistics.decode_tokens_per_second:.1f} tokens/s"
    )
