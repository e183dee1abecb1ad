"""`mlcbuild affected` in a checkout of mlcbuild, whose own code changes: against builds at both states."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.end_to_end.test_wheel import PROJECT, tracked

LIBRARIES = ("//models:qwen2.5-0.5b-x86-64-v3-lib", "//models:tinyllama-1.1b-x86-64-v3-lib", "//models:llama-70b-cuda")


@dataclass(frozen=True, kw_only=True)
class Edit:
    """One text in place of another, in a file of mlcbuild. `affects` are those of `LIBRARIES` that it has to list."""

    path: str
    old: str
    new: str
    affects: tuple[str, ...]


EDITS: Mapping[str, Edit] = {
    "a comment in a pass": Edit(
        path="mlcbuild/compiler/passes/phase1.py",
        old="from __future__ import annotations\n",
        new="# For every backend.\nfrom __future__ import annotations\n",
        affects=(),
    ),
    "a pass": Edit(
        path="mlcbuild/compiler/passes/attach_softmax_with_temperature.py",
        old="_GREEDY_BELOW = 1e-5",
        new="_GREEDY_BELOW = 2e-5",
        affects=LIBRARIES,
    ),
    "a schedule rule for CPUs": Edit(
        path="mlcbuild/compiler/backends/cpu/kernels/gemv.py",
        old="from __future__ import annotations\n",
        new="from __future__ import annotations\n\nEDITION = 2\n",
        affects=LIBRARIES[:2],
    ),
    "a family": Edit(
        path="mlcbuild/compiler/families/qwen2/model.py",
        old="from __future__ import annotations\n",
        new="from __future__ import annotations\n\nEDITION = 2\n",
        affects=LIBRARIES,  # Export is given every family.
    ),
    "a scheme": Edit(
        path="mlcbuild/compiler/quantization/schemes/q4f16_1.py",
        old="SCHEME = ",
        new="EDITION = 2\nSCHEME = ",
        affects=LIBRARIES[2:],  # All are listed: schemes take part in the analysis.
    ),
}


class Checkout:
    """A copy of what git tracks here, in a repository of its own, whose own code runs."""

    def __init__(self, folder: Path, workers: Mapping[str, str]) -> None:
        self.root, self._cache, self._workers = folder / "checkout", folder / "cache", workers
        for name in tracked():
            place = self.root / name
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(PROJECT / name, place, follow_symlinks=False)
        for arguments in (("init", "-q"), ("add", "-A"), ("commit", "-q", "-m", "one")):
            who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
            subprocess.run(["git", *who, *arguments], cwd=self.root, check=True)

    def run(self, *arguments: str) -> str:
        program = "import sys; from mlcbuild.cli.main import main; sys.exit(main(sys.argv[1:]))"
        here = {"PYTHONPATH": str(self.root), "XDG_CACHE_HOME": str(self._cache)}
        environment = {**os.environ, **self._workers, **here}
        command = [sys.executable, "-c", program, *arguments]
        ended = subprocess.run(command, cwd=self.root, env=environment, capture_output=True, text=True, check=False)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    def edit(self, edit: Edit) -> None:
        path = self.root / edit.path
        text = path.read_text(encoding="utf-8")
        assert edit.old in text
        path.write_text(text.replace(edit.old, edit.new, 1), encoding="utf-8")

    def undo(self) -> None:
        subprocess.run(["git", "checkout", "-q", "."], cwd=self.root, check=True)

    def affected(self, *patterns: str) -> dict[str, str]:
        targets: dict[str, str] = json.loads(self.run("affected", "--since", "HEAD", "--output=json", *patterns))[
            "targets"
        ]
        return targets

    def keys(self) -> dict[str, dict[str, str]]:
        """Of the actions of each library, and of all that it needs, after a build."""
        self.run("build", "--quiet", *LIBRARIES)
        found = {}
        for library in LIBRARIES:
            actions = json.loads(self.run("aquery", f"deps({library})", "--output=json"))["actions"]
            found[library] = {action["action"]: action["key"] for action in actions}
        return found


@pytest.fixture
def checkout(tmp_path: Path, warm_workers: Mapping[str, str]) -> Checkout:
    return Checkout(tmp_path, warm_workers)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["a comment in a pass", "a pass"])
def test_code_of_stages_is_that_of_the_revision(checkout: Checkout, name: str) -> None:
    checkout.edit(EDITS[name])
    listed = checkout.affected("//...")
    assert set(EDITS[name].affects) <= set(listed)
    assert "//models:llama-3-8b" not in listed, "a model alone has neither Phase0 nor Phase1"
    assert bool(listed) == bool(EDITS[name].affects)


@pytest.mark.slow
def test_code_of_the_analysis_affects_everything(checkout: Checkout) -> None:
    future = "from __future__ import annotations\n"
    checkout.edit(Edit(path="rules/rule.py", old=future, new=f"{future}\nEDITION = 2\n", affects=()))
    listed = checkout.affected("//...")
    assert listed["//platforms:cuda"] == "mlcbuild itself changed: rules/rule.py"


@pytest.mark.exhaustive
def test_no_target_is_missed_that_a_build_makes_anew(checkout: Checkout) -> None:
    """Prints what `affected` lists beyond those whose actions have other keys."""
    before = checkout.keys()
    for name, edit in EDITS.items():
        checkout.edit(edit)
        listed = set(checkout.affected(*LIBRARIES))
        after = checkout.keys()
        changed = {library for library in LIBRARIES if before[library] != after[library]}
        assert changed == set(edit.affects)
        assert changed <= listed, name
        print(f"{name}: {len(changed)} changed, {len(listed - changed)} more were listed")
        checkout.undo()
        checkout.keys()
