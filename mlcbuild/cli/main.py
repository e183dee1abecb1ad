"""The command line: `mlcbuild COMMAND …`.

Results go to standard output, everything else to standard error. Commands import what they need when they run, so
`--help` and completion take little longer than the start of Python.
"""

from __future__ import annotations

import importlib
import keyword
import os
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup
from typer.main import get_command

import mlcbuild
from mlcbuild.cli.arguments.conversion import read_without_pydantic
from mlcbuild.cli.arguments.help_format import CONTEXT, HelpCommand, examples
from mlcbuild.cli.arguments.options import GlobalOptions, Invocation
from mlcbuild.cli.exit_codes import ExitCode
from mlcbuild.cli.output.standard_streams import ReaderLeftError, failure_of_results, open_standard_streams
from mlcbuild.cli.output.terminal import ColorChoice

PROGRAM = "mlcbuild"
COMMANDS = (
    "init",
    "import",
    "build",
    "test",
    "run",
    "fetch",
    "query",
    "aquery",
    "show",
    "diff",
    "explain",
    "affected",
    "matrix",
    "bench",
    "compare",
    "tune",
    "release",
    "verify",
    "cache",
    "log",
    "report",
    "doctor",
    "help",
    "info",
    "clean",
    "shutdown",
    "version",
)
_NEARLY_EQUAL = 0.8  # of two words, from 0 to 1
_COMPLETION_VARIABLE = "_MLCBUILD_COMPLETE"


class _Group(TyperGroup):
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        read_without_pydantic(self.get_params(ctx))
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Return the command's result, or its exception as a value: typer handles some exceptions in its own way."""
        try:
            return super().invoke(ctx)
        except (typer.TyperException, typer.Exit, typer.Abort):
            raise
        except (Exception, KeyboardInterrupt) as failure:
            return failure


class _GroupWithDefault(_Group):
    """A group of which one command may be left out: that is meant unless another one comes first."""

    default_command = ""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ("-h", "--help") and not self._is_misspelt(args[0]):
            args = [self.default_command, *args]
        return super().parse_args(ctx, args)

    def _is_misspelt(self, word: str) -> bool:
        """Whether one of the commands is meant: a pattern that is a bare word may still be written with its colon."""
        import difflib

        return word.isalpha() and bool(difflib.get_close_matches(word, self.commands, n=1, cutoff=_NEARLY_EQUAL))


class _Commands(Mapping[str, Any]):
    """All commands by name, each of which is set up when it is asked for: that costs milliseconds."""

    def __init__(self) -> None:
        self._made: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in COMMANDS:
            raise KeyError(name)
        if name not in self._made:
            group: Any = get_command(application((name,)))
            self._made |= group.commands
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


class _AllCommands(_Group):
    """The group of all commands. To list them sets none of them up."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = _Commands()  # type: ignore[assignment]  # Nothing is added to it.

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002
        width = formatter.width - 6 - max(map(len, COMMANDS))
        rows = [(name, textwrap.shorten(_summary(name), width, placeholder="...")) for name in COMMANDS]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"{PROGRAM} {mlcbuild.__version__}")
        raise typer.Exit


def _globals(
    context: typer.Context,
    directory: Annotated[
        Path,
        typer.Option("--workspace", "-C", metavar="DIR", show_default=False, help="Work as if started in DIR."),
    ] = Path(),
    color: Annotated[
        ColorChoice,
        typer.Option(
            metavar="auto|always|never",
            show_default=False,
            help="Colour. Default: on terminals, unless NO_COLOR is set.",
        ),
    ] = ColorChoice.AUTO,
    _version: Annotated[
        bool,
        typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=_print_version),
    ] = False,
) -> None:
    """A build system for language models.

    Targets are declared in BUILD.toml files. Each stage of a model's compilation is an action. Its result is cached
    under a hash of its inputs, so only what has changed is built again.
    """
    invocation: Invocation = context.obj
    invocation.options = replace(invocation.options, color=color, directory=Path.cwd() / directory)


def application(commands: Sequence[str] = COMMANDS, *, group: type[TyperGroup] = _Group) -> typer.Typer:
    """The application with these commands, each of which is defined in the module of its name."""
    made = typer.Typer(
        name=PROGRAM,
        cls=group,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings=CONTEXT,
        epilog=examples(
            "mlcbuild build //models:smollm2-135m-cpu",
            'mlcbuild run //models:smollm2-135m-cpu -- --prompt "How are you?"',
            "mlcbuild query 'deps(//models:smollm2-135m-cpu)'",
            "mlcbuild help exit-codes",
        ),
    )
    made.callback()(_globals)
    for name in commands:
        module = _module(name)
        epilog = getattr(module, f"{name.upper()}_EXAMPLES", None)
        subcommands = getattr(module, f"{name.upper()}_COMMANDS", None)
        if subcommands is None:
            command = made.command(name, cls=HelpCommand, context_settings=CONTEXT, epilog=epilog)
            command(_function(name))
            continue
        inner = typer.Typer(cls=_Group, context_settings=CONTEXT, epilog=epilog)
        if default := getattr(module, f"{name.upper()}_DEFAULT", ""):
            inner.info.cls = type("_GroupWithDefault", (_GroupWithDefault,), {"default_command": default})
        alone = getattr(module, f"{name.upper()}_STANDS_ALONE", False)
        inner.callback(invoke_without_command=alone)(_function(name))
        for subcommand, subepilog in subcommands:
            word = subcommand.__name__.rstrip("_").replace("_", "-")
            inner.command(word, cls=HelpCommand, context_settings=CONTEXT, epilog=subepilog)(subcommand)
        made.add_typer(inner, name=name)
    return made


def _module(command: str) -> ModuleType:
    return importlib.import_module(f"mlcbuild.cli.commands.{_in_python(command)}")


def _function(command: str) -> Callable[..., None]:
    function: Callable[..., None] = getattr(_module(command), _in_python(command))
    return function


def _summary(command: str) -> str:
    """The first sentence of a command's help."""
    paragraph = " ".join((_function(command).__doc__ or "").partition("\n\n")[0].split())
    sentence, period, _ = paragraph.partition(". ")
    return sentence + period.strip()


def _in_python(command: str) -> str:
    return f"{command}_" if keyword.iskeyword(command) else command


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. `arguments` are those after the program's name."""
    given = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    if os.environ.get(_COMPLETION_VARIABLE) == "complete_bash":
        _complete_in_bash()
    invocation = Invocation(options=GlobalOptions(environment=os.environ, arguments=tuple(given)))
    try:
        open_standard_streams()
        code = _run(given, invocation)
        failure = failure_of_results()
    except KeyboardInterrupt as interruption:
        return _reported(interruption, invocation)
    except ReaderLeftError:
        return int(ExitCode.OK)
    return _reported(failure, invocation) if failure and code == ExitCode.OK else code


def _run(arguments: list[str], invocation: Invocation) -> int:
    # Each command costs milliseconds to set up, so only the one that comes first is.
    first = arguments[0] in COMMANDS
    program = application(arguments[:1]) if first else application((), group=_AllCommands)
    try:
        result = get_command(program).main(args=arguments, prog_name=PROGRAM, standalone_mode=False, obj=invocation)
    except ReaderLeftError:
        raise
    except Exception as error:
        result = error
    if isinstance(result, ReaderLeftError):
        raise result
    return _reported(result, invocation) if isinstance(result, BaseException) else int(result or ExitCode.OK)


def _reported(failure: BaseException, invocation: Invocation) -> int:
    from mlcbuild.cli.output.errors import report_error

    return int(report_error(failure, invocation.options))


def _complete_in_bash() -> NoReturn:
    """Complete for Bash, which splits words at colons, although labels contain colons."""
    import contextlib
    import io

    from mlcbuild.cli.arguments.completion import rejoin_bash_words

    kept = rejoin_bash_words(os.environ)
    offered = io.StringIO()
    with contextlib.redirect_stdout(offered), contextlib.suppress(SystemExit):
        get_command(application()).main(args=[], prog_name=PROGRAM)
    for line in offered.getvalue().splitlines():
        print(line.removeprefix(kept))
    sys.exit(0)


if __name__ == "__main__":
    sys.exit(main())
