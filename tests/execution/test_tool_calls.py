"""What a tool sees, and how each of its ends is reported."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mlcbuild.engine.action import ExecutionRequirements
from mlcbuild.engine.executor import OutcomeKind

if TYPE_CHECKING:
    from tests.execution.conftest import World


def test_a_program_among_the_inputs_runs(world: World) -> None:
    script = world.entry("bin/tool.sh", "#!/bin/sh\ncat in.txt in.txt > $1\n", is_executable=True)
    outcome = world.run(world.tool("bin/tool.sh", "out.txt", inputs=(script, world.entry("in.txt", "ab"))))
    assert world.content(outcome) == "abab"


def test_its_environment_is_the_declared_and_the_fixed_variables(world: World) -> None:
    outcome = world.run(world.tool("/bin/sh", "-c", "env | sort > out.txt; pwd >> out.txt", environment=(("A", "b"),)))
    *lines, directory = world.content(outcome).splitlines()
    names = {line.partition("=")[0] for line in lines} - {"PWD", "SHLVL", "OLDPWD", "_"}
    assert names == {
        *("A", "HOME", "LC_ALL", "PATH", "PYTHONHASHSEED", "TMPDIR"),
        *("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "TVM_NUM_THREADS"),
    }
    assert f"HOME={directory}" in lines


def test_a_failing_exit_code_is_told_with_the_log(world: World) -> None:
    outcome = world.run(world.tool("/bin/sh", "-c", "echo made it so far; echo wrong >&2; exit 3"))
    assert (outcome.kind, outcome.exit_code) == (OutcomeKind.FAILED, 3)
    assert outcome.message == "//t:x Command: '/bin/sh' ended with exit code 3"
    assert outcome.log == b"made it so far\nwrong\n"


def test_inputs_are_files_of_its_own(world: World) -> None:
    text = world.entry("in.txt", "ab")
    outcome = world.run(
        world.tool("/bin/sh", "-c", "test ! -L in.txt && stat -c '%a %Y' in.txt > out.txt", inputs=(text,))
    )
    assert world.content(outcome) == "444 946684800\n"


def test_writing_to_its_copy_of_an_input_does_not_reach_the_store(world: World) -> None:
    text = world.entry("in.txt", "ab")
    world.run(world.tool("/bin/sh", "-c", "chmod u+w in.txt; echo x > in.txt; touch out.txt", inputs=(text,)))
    assert world.store.read(text.digest) == b"ab"


def test_a_missing_program_of_the_machine_is_its_fault(world: World) -> None:
    outcome = world.run(world.tool("/usr/bin/no-such-program"))
    assert outcome.kind is OutcomeKind.ENVIRONMENT
    assert "/usr/bin/no-such-program" in outcome.message


def test_a_missing_program_among_the_inputs_is_the_actions(world: World) -> None:
    outcome = world.run(world.tool("bin/tool"))
    assert outcome.kind is OutcomeKind.FAILED
    assert "not among the inputs" in outcome.message


def test_a_broken_pipe_ends_a_program_as_in_a_shell(world: World) -> None:
    outcome = world.run(world.tool("/bin/sh", "-c", "yes | head -n 1 > out.txt"))
    assert (world.content(outcome), outcome.log) == ("y\n", b"")


def test_its_time_limit_ends_it(world: World) -> None:
    requirements = ExecutionRequirements(timeout_seconds=0.3)
    outcome = world.run(world.tool("/bin/sleep", "1000", requirements=requirements))
    assert outcome.kind is OutcomeKind.FAILED
    assert "longer than its limit of 0.3 s" in outcome.message


def test_no_process_is_left_when_it_forks_and_ends(world: World) -> None:
    pids = world.directory / "pids"
    outcome = world.run(world.tool("/bin/sh", "-c", f"sleep 1000 & echo $! > {pids}; touch out.txt"))
    assert outcome.kind is OutcomeKind.SUCCEEDED
    assert world.is_gone(int(pids.read_text()))


def test_files_of_a_killed_executor_are_removed_by_the_next(world: World) -> None:
    abandoned = world.scratch / "run-abandoned"
    (abandoned / "7").mkdir(parents=True)
    (abandoned / "lock").touch()
    world.run(world.tool("/bin/touch", "out.txt"))
    assert not abandoned.exists()


@pytest.mark.parametrize(
    ("argument", "variable", "reason"),
    [
        ("a\0b", ("A", "b"), "embedded null byte"),
        ("\ud800", ("A", "b"), "surrogates not allowed"),
        ("a", ("A=B", "c"), "illegal environment variable name"),
    ],
)
def test_what_no_program_can_be_given_fails_its_action_and_no_other(
    argument: str, variable: tuple[str, str], reason: str, world: World
) -> None:
    started = world.directory / "started"
    world.executor.submit(world.tool("/bin/sh", "-c", f"> {started}; sleep 0.5; touch out.txt", identifier="other"))
    world.wait_for(started)
    outcome = world.run(world.tool("/bin/echo", argument, environment=(variable,)))
    assert (outcome.kind, outcome.log) == (OutcomeKind.FAILED, b"")
    assert outcome.message.startswith("//t:x Command: '/bin/echo' could not be run: ")
    assert outcome.message.endswith(reason)
    assert (world.next().kind, outcome.exit_code) == (OutcomeKind.SUCCEEDED, 127)
