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
from mlcbuild.cli.run.generation_options import (
    DEFAULT_MAX_TOKENS,
    TEXT_OPTIONS,
    VECTOR_OPTIONS,
    GenerationOptions,
    LogitsOf,
)
from mlcbuild.cli.run.loading import loading
from mlcbuild.errors import MlcbuildError, UsageError

if TYPE_CHECKING:
    from mlcbuild.runtime.generate import Generation, GenerationStatistics
    from mlcbuild.runtime.sampling import Sampling

_SEED_BITS = 32


def run_package(package: Path, wanted: GenerationOptions, options: GlobalOptions) -> ExitCode:
    """Do with a package what the arguments say.

    Raises UsageError for a prompt that is too long, and LocalEnvironmentError if TVM does not load.
    """
    makes_embeddings = _check_task(package, wanted)
    try:
        if wanted.chat:
            from mlcbuild.cli.run.chat import chat

            return chat(package, wanted, options)
        if wanted.embed:
            from mlcbuild.cli.run.embedding import embed

            return embed(package, wanted, options)
        if wanted.batch is not None:
            if makes_embeddings:
                from mlcbuild.cli.run.embedding import embed_batch

                return embed_batch(package, wanted, options)
            from mlcbuild.cli.run.batch import run_batch

            return run_batch(package, wanted, options)
        return generate_text(package, wanted, options)
    except (MlcbuildError, ReaderLeftError, OSError):
        raise
    except Exception as error:
        return report_run_error(error, options)


def _check_task(package: Path, wanted: GenerationOptions) -> bool:
    """Whether the model makes embeddings. Raises UsageError for options that are for models of the other kind."""
    from mlcbuild.runtime.package import ModelPackage, refuse_generation

    opened = ModelPackage.open(package)
    if opened.is_embedding and wanted.batch is None and not wanted.embed:
        refuse_generation(opened)
    wrong = TEXT_OPTIONS if opened.is_embedding else VECTOR_OPTIONS
    if given := [name for name in wrong if name in wanted.given]:
        kind = "makes embeddings" if opened.is_embedding else "generates text"
        raise UsageError(f"{given[0]} is not for this model, which {kind}")
    return opened.is_embedding


def generate_text(package: Path, wanted: GenerationOptions, options: GlobalOptions) -> ExitCode:
    """Write the answer to standard output and, with `--stats`, its speed to standard error."""
    from mlcbuild.runtime.generate import generate

    assert wanted.prompt is not None
    sampling = sampling_of(wanted)
    with loading(options) as loaded:
        generation = generate(
            package,
            wanted.prompt,
            raw=wanted.raw,
            system=wanted.system,
            max_tokens=DEFAULT_MAX_TOKENS if wanted.max_tokens is None else wanted.max_tokens,
            sampling=sampling,
            stop_strings=wanted.stop,
            every_logit=wanted.logits_of is LogitsOf.ALL,
            threads=wanted.threads,
            loaded=loaded,
        )
    if wanted.max_tokens == 0:
        for _ in generation:
            pass
    else:
        stream(generation, sys.stdout)
    if wanted.logits is not None:
        write_logits(generation, wanted.logits)
    if generation.context_is_full:
        options.note("the answer is cut: the model's context is full")
    if wanted.stats:
        line = statistics_line(generation.statistics)
        print(f"{line} · seed {sampling.seed}" if wanted.temperature > 0 else line, file=sys.stderr)
    return ExitCode.OK


def write_logits(generation: Generation, path: Path) -> None:
    """Write the logits of the prompt. Raises OSError."""
    from mlcbuild.runtime.logits_file import LogitsFile

    assert generation.prompt_logits is not None
    with LogitsFile(path) as file:
        file.add(generation.prompt, generation.prompt_logits)


def sampling_of(wanted: GenerationOptions) -> Sampling:
    """How tokens are chosen, with a random seed where none is given."""
    from mlcbuild.runtime.sampling import Sampling

    seed = secrets.randbits(_SEED_BITS) if wanted.seed is None else wanted.seed
    return Sampling(temperature=wanted.temperature, top_p=wanted.top_p, seed=seed)


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
    """`prompt 32 tokens (20 kept) · 240.1 tokens/s · then 127 tokens · 61.2 tokens/s`"""
    kept = f" ({statistics.kept_tokens} kept)" if statistics.kept_tokens else ""
    return (
        f"prompt {statistics.prompt_tokens} tokens{kept} · {statistics.prefill_tokens_per_second:.1f} tokens/s"
        f" · then {statistics.decoded_tokens} tokens · {statistics.decode_tokens_per_second:.1f} tokens/s"
    )
