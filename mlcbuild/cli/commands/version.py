"""`mlcbuild version`."""

from __future__ import annotations

from mlcbuild.cli.arguments.options import OutputOption
from mlcbuild.cli.output.json_output import print_json
from mlcbuild.cli.output.terminal import OutputFormat


def version(output: OutputOption = OutputFormat.TEXT) -> None:
    """Print the versions of mlcbuild, Python and TVM."""
    import platform

    import mlcbuild
    from mlcbuild.cli.inspection.distributions import installed_version

    versions = {
        "mlcbuild": mlcbuild.__version__,
        "python": platform.python_version(),
        "apache-tvm": installed_version("apache-tvm"),
        "apache-tvm-ffi": installed_version("apache-tvm-ffi"),
    }
    if output is OutputFormat.JSON:
        print_json(versions)
    else:
        for name, number in versions.items():
            print(f"{name} {number or 'not installed'}")
