"""`mlcbuild import`: writes a BUILD.toml for what a specification file of MLC-LLM asks for."""

from __future__ import annotations

import os
from pathlib import Path

from mlcbuild.cli.arguments.options import GlobalOptions
from mlcbuild.cli.init.build_file import Table, build_text, check_place, target_name, write_new
from mlcbuild.cli.init.json_places import read_json
from mlcbuild.cli.init.matrices import Matrices, by_message
from mlcbuild.cli.init.mlc_specs import read_spec
from mlcbuild.cli.output.json_output import print_json
from mlcbuild.cli.output.terminal import OutputFormat
from mlcbuild.cli.output.text import plural
from mlcbuild.rules.backend import backends
from mlcbuild.workspace.packages import BUILD_FILE


def import_spec(argument: str, options: GlobalOptions, *, start: Path, output: OutputFormat) -> None:
    """Write `BUILD.toml` in the folder of `options` for the file that `argument` names, relative to `start`. Prints the
    path, and on standard error what the file asks for and the tables do not have, each with its place in the file.

    Raises UsageError where there is a BUILD.toml already or the file cannot be read, WorkspaceError for a file of
    another form; then nothing is written.
    """
    root = Path(os.path.normpath(options.directory))
    build_file = root / BUILD_FILE
    notes = check_place(root, build_file)
    file = read_json(start / argument, path=argument)
    spec = read_spec(file)
    matrices = Matrices(root=root, start=Path(os.path.normpath(start)))
    workspace = Table(
        rule="workspace",
        values={"name": target_name(root.name), "default_platform": f"@platforms//:{next(iter(backends()))}"},
        comment=f"Imported from {Path(argument).name}, {spec.kind} of MLC-LLM.",
        is_list=False,
    )
    tables = [workspace, *matrices.tables(spec)]
    write_new(build_file, build_text(tables))
    found = by_message(matrices.not_mapped)
    if output is OutputFormat.JSON:
        print_json(
            {
                "file": str(build_file),
                "targets": matrices.target_count,
                "not_mapped": [
                    {"location": str(file.location(each.keys)), "message": each.message, "advice": each.advice}
                    for each in matrices.not_mapped
                ],
            }
        )
        return
    print(build_file)
    for (message, advice), places in found.items():
        more = f" (and {len(places) - 1} more like it)" if len(places) > 1 else ""
        options.tell([f"{file.location(places[0])}: {message}{more}", *([f"  {advice}"] if advice else [])])
    options.tell(notes)
    left = f", {plural(len(matrices.not_mapped), 'value')} of the file not mapped" if found else ""
    fetch = ["  mlcbuild fetch --update //..."] if matrices.fetches else []
    options.tell([f"{plural(matrices.target_count, 'target')}{left}", "next:", *fetch, "  mlcbuild query //..."])
