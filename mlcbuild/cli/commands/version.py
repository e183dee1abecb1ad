"""`mlcbuild version`."""

from __future__ import annotations

from mlcbuild.cli.options import OutputOption
from mlcbuild.cli.terminal import OutputFormat


def version(output: OutputOption = OutputFormat.TEXT) -> None:
    """Print the versions of mlcbuild and of what it stands on."""
    import platform

    import mlcbuild
    from mlcbuild.cli.distributions import installed_version

    versions = {
        "mlcbuild": mlcbuild.__version__,
        "python": platform.python_version(),
        "apache-tvm": installed_version("apache-tvm"),
        "apache-tvm-ffi": installed_version("apache-tvm-ffi"),
    }
    if output is OutputFormat.JSON:
        import json

        print(json.dumps(versions, indent=2))
    else:
        for name, number in versions.items():
            print(f"{name} {number or 'not installed'}")
