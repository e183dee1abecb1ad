"""Locks and environments: what a lock may say, and what is told before anything is fetched."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlcbuild.engine.action import CachePolicy
from mlcbuild.errors import WorkspaceErrors
from mlcbuild.rules.environment_lock import LockedWheel, read_lock
from mlcbuild.rules.environments import EnvironmentInfo
from mlcbuild.workspace.label import Label
from tests.rules.world import action, analysed, write

DIGEST = "0123456789abcdef" * 4
PIN = f"--hash=sha256:{DIGEST}"


def environment(root: Path, lock: str, more: str = 'license = "MIT"') -> Path:
    build = f'[workspace]\nname = "test"\n\n[[python_environment]]\nname = "made"\nlock = "lock.txt"\n{more}\n'
    return write(root, {"BUILD.toml": build, "lock.txt": lock})


def test_a_lock_is_read_as_pip_reads_it() -> None:
    lock = f"# made by hand\nTwo_words.More==2.0.post1 \\\n    {PIN}  # why\n\none[extra]==1.0 --hash sha256:{DIGEST}\n"
    assert read_lock(lock, "lock.txt") == (
        (
            LockedWheel(name="one", version="1.0", sha256=DIGEST),
            LockedWheel(name="two-words-more", version="2.0.post1", sha256=DIGEST),
        ),
        (),
    )


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("--index-url https://index.example/simple", 'the option "--index-url" in a lock file'),
        (f"one>=1 {PIN}", "is not one version of a package"),
        (f"one @ file:///x.whl {PIN}", "is not one version of a package"),
        ("one==1", "one has no hashes"),
        (f"one==1 {PIN} {PIN}", "one has 2 hashes"),
        ("one==1 --hash=md5:00", '"md5:00" of one is not a SHA-256'),
        (f"one==1 --hash=sha256:{DIGEST[:-1]}", "is not a SHA-256"),
        (f"one==1 ; python_version > '3' {PIN}", "one has a condition"),
        (f"one==1 --global-option=x {PIN}", '"--global-option=x" of one is unknown'),
        (f"one==1 {PIN}\nOne==2 {PIN}", "one a second time"),
        ("", "no wheel"),
    ],
)
def test_a_mistake_in_a_lock_is_told_with_its_line(line: str, told: str) -> None:
    _, errors = read_lock(f"# first\n{line}\n", "locks/lock.txt")
    (error,) = errors
    assert told in error.message
    assert str(error).startswith("locks/lock.txt")
    assert error.location is not None
    assert error.location.line == (3 if "second time" in told else 2 if line else 0)


def test_all_mistakes_of_a_lock_are_told_together(tmp_path: Path) -> None:
    with pytest.raises(WorkspaceErrors) as raised:
        analysed(environment(tmp_path, "one==1\ntwo>=2\n"), "//:made")
    assert [str(error).splitlines()[0] for error in raised.value.errors] == [
        "lock.txt:1: one has no hashes",
        'lock.txt:2: "two>=2" is not one version of a package',
    ]


def test_each_wheel_is_a_pinned_file_and_the_environment_stays_on_its_machine(tmp_path: Path) -> None:
    lock = f"two==2 {PIN}\nOne==1.0 {PIN}\n"
    analysis = analysed(environment(tmp_path, lock), "//:made")
    fetches = [each for each in analysis.actions if each.mnemonic == "Fetch"]
    assert [(each.outputs, each.pinned_content, each.requirements.execution_hints) for each in fetches] == [
        (("out/one-1.0.whl",), DIGEST, (("package", "one"), ("version", "1.0"))),
        (("out/two-2.whl",), DIGEST, (("package", "two"), ("version", "2"))),
    ]
    unpack = action(analysis, "UnpackEnvironment")
    assert unpack.cache is CachePolicy.REMADE
    assert unpack.toolchains == ("python",)
    assert [each.path for each in unpack.inputs] == ["in/wheels/one-1.0.whl", "in/wheels/two-2.whl"]
    found = analysis.targets[Label("", "made")].provided(EnvironmentInfo)
    assert found is not None
    assert found.versions == (("one", "1.0"), ("two", "2"))


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ('license = "Apache 2"', 'BUILD.toml:7:11: "Apache 2" is not an SPDX license expression in //:made'),
        (
            'license = "MIT AND LicenseRef-Maker"',
            "BUILD.toml:7:11: LicenseRef-Maker, a licence that SPDX does not list, is not accepted in //:made",
        ),
        (
            'license = "MIT"\naccept_license = ["MIT"]',
            'BUILD.toml:8:18: "MIT" need not be accepted in //:made',
        ),
    ],
)
def test_a_licence_is_told_of_at_load(tmp_path: Path, more: str, told: str) -> None:
    with pytest.raises(WorkspaceErrors) as raised:
        analysed(environment(tmp_path, f"one==1 {PIN}\n", more), "//:made")
    (error,) = raised.value.errors
    assert str(error).splitlines()[0] == told


def test_a_licence_that_spdx_does_not_list_can_be_accepted(tmp_path: Path) -> None:
    more = (
        'license = "MIT AND (LicenseRef-Maker OR LicenseRef-Other)"\n'
        'accept_license = ["LicenseRef-Maker", "LicenseRef-Other"]'
    )
    unpack = action(analysed(environment(tmp_path, f"one==1 {PIN}\n", more), "//:made"), "UnpackEnvironment")
    assert dict(unpack.command.parameters)["accepted"] == ["LicenseRef-Maker", "LicenseRef-Other"]  # type: ignore[union-attr]


def test_what_may_be_missing_is_not_locked(tmp_path: Path) -> None:
    environment(tmp_path, f"two-words==1 {PIN}\n", 'license = "MIT"\nwithout = ["Two_Words", "other"]')
    with pytest.raises(WorkspaceErrors) as raised:
        analysed(tmp_path, "//:made")
    (error,) = raised.value.errors
    assert str(error).startswith("BUILD.toml:8:11: two-words is in the lock, and in without in //:made")
