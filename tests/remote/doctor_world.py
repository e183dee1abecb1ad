"""What tests of `mlcbuild doctor remote` share: a command, and its findings by name."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from mlcbuild.cli.main import main


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a doctor answered: its exit code, and each check by name."""

    code: int
    checks: Mapping[str, Mapping[str, Any]]

    def verdict(self, name: str) -> str:
        return str(self.checks[name]["verdict"])

    def measured(self, name: str) -> str:
        return str(self.checks[name]["measured"])

    def of(self, verdict: str) -> list[str]:
        """The names of checks that ended so, in order."""
        return [name for name, check in self.checks.items() if check["verdict"] == verdict]


@dataclass(kw_only=True)
class Doctor:
    """Asked in an empty folder, with no settings but those that are given."""

    folder: Path
    monkeypatch: pytest.MonkeyPatch
    capsys: pytest.CaptureFixture[str]

    def text(self, *arguments: str, **variables: str) -> tuple[int, str]:
        """The exit code, and all that was printed on both streams."""
        with self.monkeypatch.context() as patch:
            for name, value in {"HOME": str(self.folder), "XDG_CONFIG_HOME": str(self.folder), **variables}.items():
                patch.setenv(name, value)
            patch.chdir(self.folder)
            code = main(["doctor", *arguments])
        out, err = self.capsys.readouterr()
        return code, out + err

    def __call__(self, *arguments: str, **variables: str) -> Outcome:
        code, said = self.text("remote", *arguments, "--output=json", **variables)
        document = json.loads(said[said.index("{") :].rpartition("}")[0] + "}")
        assert document["exit_code"] == code
        return Outcome(code=code, checks={check["name"]: check for check in document["checks"]})


def without_figures(said: str) -> str:
    """The text with every measured duration, size and throughput replaced."""
    said = re.sub(r"\d[\d,.]* ?(?:ms|s)\b", "N s", said)
    return re.sub(r"\d[\d,.]* ?[kMGT]?B(/s)?(?![\w])", r"N MB\1", said)
