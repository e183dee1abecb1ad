"""`mlcbuild run LABEL -- --batch FILE`: requests of a file, results of all in their order.

Results go to standard output as they come, or into a file that appears when it is whole.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from mlcbuild.cli.arguments.options import GlobalOptions
from mlcbuild.cli.exit_codes import ExitCode
from mlcbuild.cli.output.slow_progress import SlowProgress, slow_progress
from mlcbuild.cli.output.text import plural, seconds
from mlcbuild.cli.run.batch_files import opened, written
from mlcbuild.cli.run.generation_options import DEFAULT_MAX_TOKENS, GenerationOptions, LogitsOf
from mlcbuild.cli.run.loading import loading

if TYPE_CHECKING:
    from mlcbuild.runtime.batch.envelope import RejectedRequest
    from mlcbuild.runtime.batch.request import BatchRequest, RequestDefaults
    from mlcbuild.runtime.batch.run import BatchTotals
    from mlcbuild.runtime.logits_file import LogitsFile


def run_batch(package: Path, wanted: GenerationOptions, options: GlobalOptions) -> ExitCode:
    """Answer every request. Returns RUN_FAILED where some could not be answered. Raises OSError for a file that cannot
    be read or written, UsageError for a package that does not fit together or a limit that it does not have."""
    from mlcbuild.runtime.batch.request import RequestDefaults
    from mlcbuild.runtime.batch.result import result_line
    from mlcbuild.runtime.batch.run import BatchLimits, BatchRun
    from mlcbuild.runtime.engine import Engine
    from mlcbuild.runtime.package import ModelPackage
    from mlcbuild.runtime.tokenizer import PackageTokenizer

    assert wanted.batch is not None
    defaults = RequestDefaults(
        max_tokens=DEFAULT_MAX_TOKENS if wanted.max_tokens is None else wanted.max_tokens,
        temperature=wanted.temperature,
        top_p=wanted.top_p,
        seed=wanted.seed or 0,  # not a random one: a batch says the same each time
        stop=wanted.stop,
    )
    tokenizer = PackageTokenizer(ModelPackage.open(package))
    with ExitStack() as stack:
        source = stack.enter_context(opened(wanted.batch))
        output = stack.enter_context(written(wanted.output_file))
        logits = stack.enter_context(_logits_file(wanted.logits))
        with loading(options) as loaded:
            engine = Engine(package, threads=wanted.threads, loaded=loaded)
        progress = stack.enter_context(slow_progress(options))
        limits = BatchLimits.of(engine, max_batch_size=wanted.max_batch_size, max_total_tokens=wanted.max_total_tokens)
        run = BatchRun(
            engine,
            tokenizer,
            limits=limits,
            keep_logits=None if logits is None else lambda number, ids, row: logits.add(ids, row, number=number),
            every_logit=wanted.logits_of is LogitsOf.ALL,
            after_step=lambda totals: _show(progress, totals),
        )
        for result in run.results(_requests(source, defaults)):
            output.write(f"{result_line(result)}\n")
            output.flush()
    print(_summary(run.totals), file=sys.stderr)
    return ExitCode.RUN_FAILED if run.totals.rejected else ExitCode.OK


def _requests(source: BinaryIO, defaults: RequestDefaults) -> Iterator[BatchRequest | RejectedRequest]:
    """Lines without a request are skipped, and counted."""
    from mlcbuild.runtime.batch.request import parse_request

    for number, line in enumerate(source, 1):
        if line.strip():
            yield parse_request(line, number, defaults)


@contextmanager
def _logits_file(path: Path | None) -> Iterator[LogitsFile | None]:
    if path is None:
        yield None
        return
    from mlcbuild.runtime.logits_file import LogitsFile

    with LogitsFile(path) as file:
        yield file


def _show(progress: SlowProgress, totals: BatchTotals) -> None:
    progress.show_unmeasured(
        f"{plural(totals.requests, 'request')} done · {totals.running} running · {totals.tokens:,} tokens"
    )


def _summary(totals: BatchTotals) -> str:
    failed = f", {totals.rejected:,} with an error" if totals.rejected else ""
    speed = f" · {totals.tokens / totals.seconds:,.1f} tokens/s" if totals.seconds else ""
    return (
        f"{plural(totals.requests, 'request')}{failed} · prompts {totals.prompt_tokens:,} tokens"
        f" · then {totals.new_tokens:,} · {seconds(totals.seconds)}{speed}"
    )
