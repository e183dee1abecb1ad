"""What a toolchain is: what it consists of, whether it is installed, and which modules its stages want preloaded.

To add a toolchain, write one file in `entries/`, named like the toolchain, that defines `TOOLCHAIN`. Nothing else has
to be edited: builds, fork servers, `mlcbuild info` and `mlcbuild doctor` list that folder.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from dataclasses import dataclass

from mlcbuild.engine.distributions import install_again
from mlcbuild.errors import LocalEnvironmentError
from mlcbuild.toolchains.installed_files import InstalledFiles


@dataclass(frozen=True, kw_only=True)
class Toolchain(ABC):
    """Actions declare a toolchain by its `name`, and its fingerprint is part of their keys.

    With `takes_path` they declare `NAME:PATH`, and the methods are given that path; without, `path` is "".

    `preload` are the modules that a fork server imports before it forks a stage of such an action. `preloaded_for` are
    distributions, by their normalized names: a stage whose code imports one of them gets the same server, even if its
    action does not declare the toolchain. The server leaves out modules that are not installed.

    `trial` is a Python program with which the doctor tries the toolchain. It runs in its own process, in an empty
    directory. The last line that it prints is a JSON object with `done` (what it did, for people) or `skipped` (why it
    tried nothing), and with figures. If an optional toolchain is not installed, the doctor reports no problem.
    """

    name: str
    takes_path: bool = False
    is_optional: bool = False
    preload: tuple[str, ...] = ()
    preloaded_for: tuple[str, ...] = ()
    advice: tuple[str, ...] = ()  # what to do if it is not installed
    trial: str = ""
    trial_seconds: float = 60.0

    @abstractmethod
    def check(self, files: InstalledFiles, path: str) -> None:
        """Raise LocalEnvironmentError if it is not installed, as far as metadata and file names show.

        A build calls this for the toolchains of all its actions before anything runs.
        """

    @abstractmethod
    def contents(self, files: InstalledFiles, path: str) -> list[str]:
        """Lines that change with everything that may affect what the toolchain produces: names and hashes of content.

        They do not depend on the paths of the installation. Raises LocalEnvironmentError, OSError.
        """

    def version(self, files: InstalledFiles) -> str:
        """For people; "" if it is not installed, or has no version."""
        del files
        return ""

    def repair(self, files: InstalledFiles) -> tuple[str, ...]:
        """Advice if it is installed and does not work."""
        del files
        return self.advice


@dataclass(frozen=True, kw_only=True)
class DistributionToolchain(Toolchain):
    """A toolchain that consists of Python distributions. `purpose` says what needs it: "building for CUDA"."""

    distributions: tuple[str, ...]
    purpose: str

    def check(self, files: InstalledFiles, path: str) -> None:
        del path
        for name in self.distributions:
            if files.distributions.find(name) is None:
                raise LocalEnvironmentError(
                    f"{self.purpose} needs {name}, which is not installed beside {sys.executable}", advice=self.advice
                )

    def contents(self, files: InstalledFiles, path: str) -> list[str]:
        self.check(files, path)
        return [f"{name} {files.distributions.fingerprint(name)}" for name in self.distributions]

    def version(self, files: InstalledFiles) -> str:
        """The version of the first distribution, and in parentheses those of others that have another."""
        found = {name: item.version for name in self.distributions if (item := files.distributions.find(name))}
        if len(found) < len(self.distributions):
            return ""
        first = found.pop(self.distributions[0])
        others = ", ".join(f"{name} {version}" for name, version in found.items() if version != first)
        return f"{first} ({others})" if others else first

    def repair(self, files: InstalledFiles) -> tuple[str, ...]:
        found = (files.distributions.find(name) for name in self.distributions)
        return (install_again(*(each for each in found if each is not None)),)
