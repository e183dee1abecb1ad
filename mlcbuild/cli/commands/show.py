"""`mlcbuild show`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mlcbuild.cli.arguments.completion import complete_build, complete_mnemonic, complete_pattern
from mlcbuild.cli.arguments.help_format import examples
from mlcbuild.cli.arguments.options import (
    AskedRemoteOption,
    AskRemoteOption,
    ConfigOption,
    DiskCacheOption,
    OutputOption,
    SetOption,
    global_options,
)
from mlcbuild.cli.output.terminal import OutputFormat

SHOW_EXAMPLES = examples(
    "mlcbuild show //models:a                           its actions",
    "mlcbuild show //models:a Export                    one action",
    "mlcbuild show //models:a CompileKernel qkv_proj    a kernel, by its name or its content",
    "mlcbuild show //models:a Phase2 --ir               the module that it made, as TVMScript",
    "mlcbuild show //models:a --dump stages --passes    all stages as files, pass by pass",
    "mlcbuild show //models:a Export --build 2          as the build before the last had it",
)


def show(
    context: typer.Context,
    target: Annotated[
        str,
        typer.Argument(
            metavar="TARGET",
            show_default=False,
            autocompletion=complete_pattern,
            help="A target, or the whole name of an action as it is printed.",
        ),
    ],
    mnemonic: Annotated[
        str,
        typer.Argument(
            metavar="MNEMONIC",
            show_default=False,
            autocompletion=complete_mnemonic,
            help="A kind of action, such as Export. Without it: a table of all actions of the target.",
        ),
    ] = "",
    kernel: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KERNEL...",
            show_default=False,
            help="Words of the name of a kernel, or the first digits of its content.",
        ),
    ] = None,
    build: Annotated[
        str,
        typer.Option(
            "--build",
            metavar="N|ID",
            show_default=False,
            autocompletion=complete_build,
            help="Show the actions as this build recorded them: 1 for the last, 2 for the one before, or the first "
            "digits of its invocation.",
        ),
    ] = "",
    ir: Annotated[
        bool, typer.Option("--ir", help="Print the outputs as text: TVMScript, CUDA C++, assembly, SASS, bytecode.")
    ] = False,
    changes: Annotated[
        bool, typer.Option("--changes", help="Print what a phase or a schedule changed in its module.")
    ] = False,
    dump: Annotated[
        Path | None,
        typer.Option(
            "--dump",
            metavar="DIR",
            show_default=False,
            help="Write all stages of the target to DIR as text, in order.",
        ),
    ] = None,
    passes: Annotated[
        bool, typer.Option("--passes", help="With --dump: run the phases again, and write the module after each pass.")
    ] = False,
    config: ConfigOption = "",
    set_: SetOption = None,
    disk_cache: DiskCacheOption = None,
    remote: AskedRemoteOption = "",
    ask_remote: AskRemoteOption = False,
    output: OutputOption = OutputFormat.TEXT,
) -> None:
    """Look at actions of a target: inputs, outputs with digests and paths, parameters, toolchains, key, log, last run.

    An action is shown as it stands now. Nothing runs. Unless asked to, it looks no results up in a remote cache; --ir,
    --changes and --dump fetch what they show from it. With --build an action is shown as that build recorded it: also
    its times, its machine, and the components of its key with their former values.
    """
    from mlcbuild.cli.inspection.survey import SurveyRequest
    from mlcbuild.cli.show.command import ShowRequest, show_actions

    request = ShowRequest(
        words=(target, mnemonic, *(kernel or ())),
        build=build,
        ir=ir,
        changes=changes,
        dump=dump,
        passes=passes,
        survey=SurveyRequest(
            configuration=config,
            overrides=tuple(set_ or ()),
            disk_cache=disk_cache,
            remote_address=remote,
            ask_remote=ask_remote,
        ),
    )
    show_actions(request, output, global_options(context))
