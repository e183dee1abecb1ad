"""`mlcbuild run`: builds one target, then executes it or generates text with it."""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

from mlcbuild.cli.arguments.options import GlobalOptions
from mlcbuild.cli.build.request import BuildRequest, NothingToBuildError
from mlcbuild.cli.build.session import run_build
from mlcbuild.cli.exit_codes import ExitCode
from mlcbuild.cli.run.generation_options import GenerationOptions, parse_generation_options
from mlcbuild.errors import UsageError
from mlcbuild.rules.analysis import AnalysedTarget, Analysis
from mlcbuild.rules.providers import ExecutableInfo

_ADVICE = {
    "compressed_tensors_package": (
        "vLLM serves its folder: vllm serve FOLDER",
        "a model_package of the same model can be run",
    ),
    "gguf_package": (
        "llama.cpp runs its file: llama-server --model FILE.gguf",
        "a model_package of the same model can be run",
    ),
}
"""What to do with a package of another engine, by its rule."""


def build_and_run(request: BuildRequest, arguments: tuple[str, ...], options: GlobalOptions) -> ExitCode:
    """Build the target that the request's only pattern names and run it with `arguments`.

    Arguments for a model_package are checked before anything is built. A program replaces this process, so its exit
    code is that of the command. Raises UsageError for a target that cannot be run.
    """
    generation: list[GenerationOptions] = []

    def check(analysis: Analysis) -> None:
        target = _only_target(analysis, request.patterns[0])
        if not _executable(target).program:
            parsed = parse_generation_options(str(target.label), arguments)
            if parsed is None:
                raise NothingToBuildError
            generation.append(parsed)

    try:
        outcome = run_build(replace(request, check=check, quiet_if_current=True), options)
    except NothingToBuildError:
        return ExitCode.OK
    if outcome.exit_code is not ExitCode.OK:
        return outcome.exit_code
    target = _only_target(outcome.analysis, request.patterns[0])
    directory = outcome.workspace.root / outcome.directories[str(target.label)]
    program = _executable(target).program
    if program:
        return _execute(directory / program, arguments, options)
    from mlcbuild.cli.run.generation import run_package

    return run_package(directory, generation[0], options)


def _only_target(analysis: Analysis, pattern: str) -> AnalysedTarget:
    if len(analysis.requested) != 1:
        raise UsageError(
            f'"{pattern}" matches {len(analysis.requested)} targets, but only one can be run',
            advice=(f"mlcbuild query '{pattern}' lists them",),
        )
    return analysis.requested[0]


def _executable(target: AnalysedTarget) -> ExecutableInfo:
    found = target.provided(ExecutableInfo)
    if found is None:
        raise UsageError(
            f"{target.label} cannot be run: its rule is {target.rule}",
            advice=_ADVICE.get(target.rule, ("a model_package can be run, and a command with one executable output",)),
        )
    return found


def _execute(program: Path, arguments: tuple[str, ...], options: GlobalOptions) -> ExitCode:
    """Replace this process by the program. Returns only if that fails."""
    sys.stdout.flush()
    sys.stderr.flush()
    # Python ignores these, and a program would inherit that: one that writes until its reader leaves would not end.
    handlers = {number: signal.signal(number, signal.SIG_DFL) for number in (signal.SIGPIPE, signal.SIGXFSZ)}
    try:
        os.execv(program, [str(program), *arguments])
    except OSError as error:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        style = options.style(sys.stderr)
        head = f"{style.error('error:')} {program} cannot be run: {error.strerror}"
        options.tell([head, "  check that it is a program and has the executable bit"])
        return ExitCode.RUN_FAILED
