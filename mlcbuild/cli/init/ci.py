"""`mlcbuild init --ci`: writes the files of a CI system, which lie beside this module in `ci_files/`."""

from __future__ import annotations

from pathlib import Path

from mlcbuild.cli.arguments.choices import CiSystem
from mlcbuild.cli.arguments.options import GlobalOptions
from mlcbuild.errors import LocalEnvironmentError, UsageError

_FILES = Path(__file__).with_name("ci_files")
_PLACES: dict[CiSystem, dict[str, str]] = {
    CiSystem.GITHUB: {
        "github/mlcbuild.yml": ".github/workflows/mlcbuild.yml",
        "github/mlcbuild-release.yml": ".github/workflows/mlcbuild-release.yml",
        "github/mlcbuild-nightly.yml": ".github/workflows/mlcbuild-nightly.yml",
    },
    CiSystem.GITLAB: {
        "gitlab/gitlab-ci.yml": ".gitlab-ci.yml",
        "gitlab/mlcbuild-base.yml": ".gitlab/mlcbuild-base.yml",
    },
}
_REQUIREMENTS = "requirements-mlcbuild.txt"
_FIRST = {CiSystem.GITHUB: "mlcbuild.yml", CiSystem.GITLAB: ".gitlab-ci.yml"}


def check_ci_files(root: Path, system: CiSystem) -> None:
    """Raises UsageError if a file is there already: none of them is written then."""
    there = [place for place in _PLACES[system].values() if (root / place).exists()]
    if there:
        raise UsageError(
            f"{there[0]} is there already",
            advice=("init changes no file: move it away, or copy what you need from the examples of mlcbuild",),
        )


def write_ci_files(root: Path, system: CiSystem, options: GlobalOptions) -> None:
    """Write the files and print their paths. The list of what jobs install stays if it is there.

    Raises LocalEnvironmentError.
    """
    places = dict(_PLACES[system])
    if not (root / _REQUIREMENTS).exists():
        places[_REQUIREMENTS] = _REQUIREMENTS
    for name, place in places.items():
        path = root / place
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("x", encoding="utf-8") as stream:
                stream.write((_FILES / name).read_text(encoding="utf-8"))
        except OSError as error:
            raise LocalEnvironmentError(f"{path} cannot be written: {error.strerror or error}") from None
        print(path)
    options.tell([f"next: name the wheel in {_REQUIREMENTS}, and set the variables that {_FIRST[system]} lists"])
