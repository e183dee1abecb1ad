"""`mlcbuild doctor`."""

from __future__ import annotations

from typing import Annotated

import typer

from mlcbuild.cli.arguments.help_format import examples
from mlcbuild.cli.arguments.options import (
    DiskCacheOption,
    ExecutorOption,
    NoRemoteOption,
    OutputOption,
    RayAddressOption,
    RemoteOption,
    RemoteUploadOption,
    global_options,
)
from mlcbuild.cli.output.terminal import OutputFormat

DOCTOR_EXAMPLES = examples(
    "mlcbuild doctor                       everything, in a few seconds",
    "mlcbuild doctor remote disk           only these parts",
    "mlcbuild doctor --output json         for programs, with all figures",
    "mlcbuild doctor remote --remote=s3://bucket/prefix --remote-upload=results",
    "mlcbuild doctor ray --ray-address=10.0.0.1:6379",
)


def doctor(
    context: typer.Context,
    parts: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PART...]",
            show_default=False,
            help="machine, toolchains, distributions, workspace, disk, remote, signing or ray. Default: all.",
        ),
    ] = None,
    disk_cache: DiskCacheOption = None,
    remote: RemoteOption = "",
    no_remote: NoRemoteOption = False,
    remote_upload: RemoteUploadOption = None,
    executor: ExecutorOption = None,
    ray_address: RayAddressOption = "",
    output: OutputOption = OutputFormat.TEXT,
) -> int:
    """Test everything that a build uses, and advise how to fix errors.

    With the options of a build it tests what that build would use. What it writes to a server it removes again, if
    the server can remove it. Exit codes: 0 without errors, 2 for an error in a setting, 7 for an error in a
    BUILD.toml file, 36 for an error of this machine, the network or a server.
    """
    from mlcbuild.cli.doctor.output import run_doctor
    from mlcbuild.cli.settings.execution import ExecutionOptions
    from mlcbuild.cli.settings.remote import RemoteOptions

    remote_options = RemoteOptions(address=remote, upload=remote_upload or "", no_remote=no_remote)
    execution_options = ExecutionOptions(executor=executor or "", ray_address=ray_address)
    return int(
        run_doctor(tuple(parts or ()), disk_cache, remote_options, execution_options, output, global_options(context))
    )
