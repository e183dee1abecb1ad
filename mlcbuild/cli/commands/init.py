"""`mlcbuild init`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mlcbuild.cli.arguments.choices import CiSystem
from mlcbuild.cli.arguments.help_format import examples
from mlcbuild.cli.arguments.options import global_options

BUILD_FILE = "BUILD.toml"
INIT_EXAMPLES = examples(
    "mlcbuild init                                         a file that shows how to begin",
    "mlcbuild init weights/Qwen2.5-0.5B-Instruct           for a folder as on Hugging Face",
    "mlcbuild init SmolLM2-135M-Instruct.Q4_1.gguf         for a GGUF file",
    "mlcbuild init --ci github                             workflows of GitHub for the workspace here",
    "mlcbuild init hf:HuggingFaceTB/SmolLM2-135M-Instruct  for a repository, which `fetch` downloads later",
)


def init(
    context: typer.Context,
    model: Annotated[
        str,
        typer.Argument(
            metavar="[MODEL]",
            show_default=False,
            help="A folder, a GGUF file, or hf:owner/name[@REVISION]. Default: the only model here, if there is one.",
        ),
    ] = "",
    ci: Annotated[
        CiSystem | None,
        typer.Option(
            "--ci",
            metavar="github|gitlab",
            show_default=False,
            help="Write the files of a CI system as well; in a workspace that is there, these alone.",
        ),
    ] = None,
) -> None:
    """Write the BUILD.toml of a new workspace, and build nothing.

    The file has comments, the model, and a target for each kind of platform that can run it. A model that cannot be
    built is an error that says why. An existing file is never changed, and nothing is downloaded.
    """
    from mlcbuild.cli.init.new_workspace import initialize

    options = global_options(context)
    root = options.directory
    if ci is None:
        initialize(model, options, start=Path.cwd())
        return
    from mlcbuild.cli.init.ci import check_ci_files, write_ci_files

    check_ci_files(root, ci)
    if model or not (root / BUILD_FILE).exists():
        initialize(model, options, start=Path.cwd())
    write_ci_files(root, ci, options)
