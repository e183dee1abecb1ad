"""Environments of small wheels, and the page's own compiler in one: what runs when, and what goes wrong."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import pytest

from tests.end_to_end.world import PROJECT, World
from tests.remote.http_server import Cache, running
from tests.small_wheels import pip_settings, write_wheel

PAGE = (PROJECT / "docs/other-compilers.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"^```\w+\n# (\S+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))  # path → content, on the page
BUILD, PROGRAM = FILES["BUILD.toml"], FILES["louder/shout.py"]
FETCH = 48  # the exit code of a fetch that failed
LOUD = {"loud/__init__.py": "def loud(text):\n    return text.upper()\n"}
LOUDER = {"loud/__init__.py": "def loud(text):\n    return text.upper() + text.upper()\n"}


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    return tmp_path / "wheels"


@pytest.fixture
def world(tmp_path: Path, wheels: Path) -> World:
    world = World(tmp_path)
    world.environment.update(pip_settings(wheels))
    for file, content in FILES.items():
        world.write(file, content)
    world.write("greeting.txt", "hello")
    world.write("small.txt", write_wheel(wheels, "loud", "1.0", LOUD)[1])
    world.write("louder/BUILD.toml", "")
    return world


def shouted(world: World) -> str:
    return world.output("greeting/shouted.txt").read_text()


def failure(world: World, *, code: int = 1) -> str:
    done = world.build()
    assert done.code == code, done.err
    return done.err


def test_a_wheel_may_carry_others(world: World, wheels: Path) -> None:
    """As setuptools does. The wheel's own metadata lie at its top."""
    carried = {"loud/_vendor/quiet-2.0.dist-info/WHEEL": "Wheel-Version: 1.0\n"}
    world.write("small.txt", write_wheel(wheels, "loud", "1.0", {**LOUD, **carried})[1])
    assert world.build().code == 0
    assert shouted(world) == "HELLO!"


def test_an_argument_that_the_environment_has_itself_is_told(world: World) -> None:
    rule = FILES["louder/shouted.py"].replace('parameters={"marks"', 'parameters={"program": "x", "marks"')
    world.write("louder/shouted.py", rule)
    assert "Shout gives its program an argument program, which is the environment's own" in failure(world, code=7)


def test_what_an_edit_runs(world: World, wheels: Path) -> None:
    """Fetch, UnpackEnvironment and Shout are three actions, and an edit runs those that it concerns."""
    assert world.build().actions == {"executed_local": 3}
    assert shouted(world) == "HELLO!"
    assert json.loads(world.output("small/environment.json").read_text()) == {
        "version": 1,
        "distributions": [{"name": "loud", "version": "1.0", "license": "MIT"}],
    }
    assert world.build().actions == {"up_to_date": 3}
    world.write("greeting.txt", "hi")
    assert world.build().actions == {"up_to_date": 2, "executed_local": 1}
    world.write("BUILD.toml", f"{BUILD}marks = 2\n")
    assert world.build().actions == {"up_to_date": 2, "executed_local": 1}
    assert shouted(world) == "HI!!"
    world.write("louder/shout.py", PROGRAM.replace("from loud", "# Said of nothing.\n    from loud"))
    assert world.build().actions == {"up_to_date": 3}, "a comment is no change"
    world.write("louder/shout.py", PROGRAM.replace('"!" * marks', '"?" * marks'))
    assert world.build().actions == {"up_to_date": 2, "executed_local": 1}
    assert shouted(world) == "HI??"
    world.write("small.txt", "# A comment in a lock is no change.\n" + (world.root / "small.txt").read_text())
    assert world.build().actions == {"up_to_date": 3}
    world.write("small.txt", write_wheel(wheels, "loud", "2.0", LOUDER)[1])
    assert world.build().actions == {"executed_local": 3}
    assert shouted(world) == "HIHI??"
    assert world.verify() > 0


def test_an_environment_that_comes_out_the_same_compiles_nothing_again(world: World) -> None:
    """What counts of an environment is what lies in it: who accepts a licence more compiles nothing again."""
    assert world.build().actions == {"executed_local": 3}
    world.write("BUILD.toml", BUILD.replace('"MIT"', '"MIT"\naccept_license = ["LicenseRef-Other"]'))
    assert world.build().actions == {"up_to_date": 2, "executed_local": 1}


def test_two_versions_of_a_package_in_one_workspace(world: World, wheels: Path) -> None:
    world.write("other.txt", write_wheel(wheels, "loud", "2.0", LOUDER)[1])
    world.write(
        "BUILD.toml",
        f"{BUILD}\n[[python_environment]]\nname = 'other'\nlock = 'other.txt'\nlicense = 'MIT'\n\n"
        "[[shouted]]\nname = 'louder-greeting'\ntext = 'greeting.txt'\nenvironment = ':other'\n",
    )
    assert world.build().code == 0
    assert shouted(world) == "HELLO!"
    assert world.output("louder-greeting/shouted.txt").read_text() == "HELLOHELLO!"


def test_two_environments_fetch_a_wheel_once(world: World, wheels: Path) -> None:
    lock = (world.root / "small.txt").read_text() + write_wheel(wheels, "quiet", "1", {"quiet.py": ""})[1]
    world.write("both.txt", lock)
    world.write("BUILD.toml", f"{BUILD}\n[[python_environment]]\nname = 'both'\nlock = 'both.txt'\nlicense = 'MIT'\n")
    assert world.build("//:small").code == 0
    done = world.build("//:both")
    assert done.actions == {"disk_hits": 1, "executed_local": 2}, "loud is there, quiet and both are not"


def test_the_same_bytes_from_empty_caches_in_two_folders(world: World, wheels: Path, tmp_path: Path) -> None:
    found = []
    for name in ("one", "other"):
        again = World(tmp_path / name)
        again.environment.update(pip_settings(wheels))
        for file in (*FILES, "greeting.txt", "small.txt", "louder/BUILD.toml"):
            again.write(file, (world.root / file).read_bytes())
        assert again.build().actions == {"executed_local": 3}
        found.append(sorted(path.name for path in (again.store / "cas").glob("*/*")))
    assert found[0] == found[1]


def another_machine(world: World, folder: Path, cache: Cache) -> World:
    """The same workspace in another folder, with nothing in its cache, and an index that has no wheel."""
    other = World(folder)
    other.environment.update(pip_settings(folder / "no-wheels"))
    for file in (*FILES, "greeting.txt", "small.txt", "louder/BUILD.toml"):
        other.write(file, (world.root / file).read_bytes())
    other.environment.update(remote_settings(cache))
    return other


def remote_settings(cache: Cache) -> dict[str, str]:
    return {"MLCBUILD_REMOTE": cache.address, "MLCBUILD_REMOTE_ROLE": "read-write"}


def test_an_empty_machine_hits_everything_at_a_remote_and_fetches_no_wheel(
    world: World, wheels: Path, tmp_path: Path
) -> None:
    unpacked = random.Random(1).randbytes(40_000)  # more than what travels inside of results
    file, lock = write_wheel(wheels, "loud", "1.0", {**LOUD, "loud/table.bin": unpacked})
    world.write("small.txt", lock)
    wheel = file.read_bytes()
    with running() as cache:
        world.environment.update(remote_settings(cache))
        assert world.build().actions == {"executed_local": 3}
        assert wheel in cache.blobs.values()
        assert unpacked not in cache.blobs.values(), "the bytes of an environment are no one's but its machine's"

        other = another_machine(world, tmp_path / "other", cache)
        cache.log.clear()
        assert other.build().actions == {"remote_hits": 3}
        assert shouted(other) == "HELLO!"
        assert json.loads(other.output("small/environment.json").read_text())["distributions"][0]["name"] == "loud"
        here = [path.read_bytes() for path in (other.store / "cas").glob("*/*")]
        assert wheel not in here
        assert unpacked not in here
        assert other.build().actions == {"up_to_date": 3}

        # What has to run there has the environment made there, of the remote's wheel.
        other.write("greeting.txt", "hi")
        assert other.build().actions == {"up_to_date": 1, "executed_local": 2}
        assert shouted(other) == "HI!"
        other.write("greeting.txt", "hey")
        assert other.build().actions == {"up_to_date": 2, "executed_local": 1}, "once for all"
        assert other.verify() > 0


def test_pull_brings_what_others_built_without_the_environment(world: World, tmp_path: Path) -> None:
    with running() as cache:
        assert world.build().code == 0, "without a remote"
        pushed = world.mlcbuild("cache", "push", "//:greeting", **remote_settings(cache))
        assert pushed.code == 0, pushed.err
        assert b"def loud(text):\n    return text.upper()\n" not in cache.blobs.values()
        other = another_machine(world, tmp_path / "other", cache)
        pulled = other.mlcbuild("cache", "pull", "//:greeting")
        assert pulled.code == 0, pulled.err
        del other.environment["MLCBUILD_REMOTE"]
        assert other.build("//:greeting").actions == {"disk_hits": 3}
        assert shouted(other) == "HELLO!"


def test_an_environment_has_nothing_of_the_users_python(world: World) -> None:
    """NumPy is installed beside mlcbuild, and mlcbuild itself is. Neither is to be had."""
    for module in ("numpy", "mlcbuild", "pip", "pytest"):
        world.write("louder/shout.py", PROGRAM.replace("from loud import loud", f"import {module}"))
        told = failure(world)
        assert f"shout: ModuleNotFoundError: No module named '{module}'\n    a program imports its environment" in told


def test_a_program_that_finds_the_users_packages_all_the_same_is_refused(world: World) -> None:
    import numpy as np

    place = str(Path(np.__file__).parents[1])
    sneaking = f"import sys\n    sys.path.append({place!r})\n    import packaging\n    from loud import loud"
    world.write("louder/shout.py", PROGRAM.replace("from loud import loud", sneaking))
    assert "shout: it loaded modules from outside of its environment: packaging (" in failure(world)


def test_a_program_sees_its_inputs_and_not_the_users_files(world: World, tmp_path: Path) -> None:
    secret = tmp_path / "home" / "secret"
    secret.parent.mkdir()
    secret.write_text("secret")
    world.write("louder/shout.py", PROGRAM.replace("from loud import loud", f"loud = open({str(secret)!r}).read"))
    assert "PermissionError" in failure(world)


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ('raise SystemExit("the text is too quiet")', ": the text is too quiet\n"),
        ("raise ValueError(marks)", "shout: ValueError: 1"),
        ("text.open('r+')", "it is a file of the input text, and inputs are read-only\n    where something opens it"),
        ("return\n    from loud import loud", "did not make the declared output 'out/shouted.txt'\nerror: "),
        ("import os, signal\n    os.kill(os.getpid(), signal.SIGSEGV)", "shout crashed with SIGSEGV"),
        ("import os\n    os._exit(3)", "shout ended with exit code 3 in its Python environment"),
    ],
)
def test_how_a_program_can_fail(world: World, body: str, told: str) -> None:
    world.write("louder/shout.py", PROGRAM.replace("from loud import loud", body))
    assert told in failure(world)


@pytest.mark.parametrize(
    ("written", "instead", "told"),
    [
        (
            "marks: int",
            "count: int",
            "louder.shout:run cannot be called: missing a required argument: 'count'\n"
            "    it takes: text, shouted, count\n    the rule gives: marks, shouted, text",
        ),
        ("def run(", "def shout(", "the module louder.shout has no run\n    it has: shout"),
        (
            "from pathlib",
            "import loud\nfrom pathlib",
            "ModuleNotFoundError: No module named 'loud'\n    a stage imports what is installed beside mlcbuild\n"
            "    a program of a python_environment imports what that has inside its function",
        ),
    ],
)
def test_a_program_that_is_not_what_its_rule_calls(world: World, written: str, instead: str, told: str) -> None:
    assert written in PROGRAM
    world.write("louder/shout.py", PROGRAM.replace(written, instead, 1))
    assert told in failure(world)


def test_a_wheel_that_no_index_has(world: World, wheels: Path) -> None:
    next(wheels.iterdir()).unlink()
    told = failure(world, code=FETCH)
    assert "pip could not download loud==1.0: No matching distribution found for loud==1.0" in told


def test_a_wheel_with_another_hash(world: World) -> None:
    lock = (world.root / "small.txt").read_text()
    world.write("small.txt", f"{lock.partition('sha256:')[0]}sha256:{'0' * 64}\n")
    assert "pip could not download loud==1.0: no wheel of it has the pinned SHA-256" in failure(world, code=FETCH)


def test_a_version_whose_hash_is_that_of_another(world: World) -> None:
    assert world.build().code == 0
    world.write("small.txt", (world.root / "small.txt").read_text().replace("==1.0", "==1.1"))
    assert "pip could not download loud==1.1" in failure(world, code=FETCH)


def test_what_is_not_in_the_lock_is_told_at_load(world: World, wheels: Path) -> None:
    world.write("small.txt", write_wheel(wheels, "quiet", "1", {"quiet.py": ""})[1])
    done = world.build()
    assert done.code == 7, done.err
    assert "BUILD.toml:13:15: //:small has no loud in //:greeting" in done.err


def test_a_licence_that_is_not_accepted(world: World, wheels: Path) -> None:
    metadata = "License-Expression: LicenseRef-Loud-Terms\n"
    world.write("small.txt", write_wheel(wheels, "loud", "1.0", LOUD, metadata=metadata)[1])
    assert "loud 1.0 has the licence LicenseRef-Loud-Terms, which is not accepted" in failure(world)
    expression = 'license = "LicenseRef-Loud-Terms"'
    world.write("BUILD.toml", BUILD.replace('license = "MIT"', expression))
    done = world.build()
    assert done.code == 7
    assert "LicenseRef-Loud-Terms, a licence that SPDX does not list, is not accepted in //:small" in done.err
    world.write(
        "BUILD.toml",
        BUILD.replace('license = "MIT"', f'{expression}\naccept_license = ["LicenseRef-Loud-Terms"]'),
    )
    assert world.build().code == 0
