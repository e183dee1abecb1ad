"""What an action in the sandbox can and cannot do; a denied path is named."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import mlcbuild
from mlcbuild.engine.action import ExecutionRequirements
from mlcbuild.engine.executor import OutcomeKind
from mlcbuild.errors import readable
from mlcbuild.execution.layout import Layout
from mlcbuild.execution.local import LocalExecutor
from mlcbuild.execution.sandbox import cuts_network, landlock_version
from mlcbuild.execution.sandbox_policy import SandboxPolicies, without
from tests.execution.conftest import STAGES, make_world

if TYPE_CHECKING:
    from tests.execution.conftest import World

needs_landlock = pytest.mark.skipif(landlock_version() == 0, reason="this kernel has no Landlock")
needs_filter = pytest.mark.skipif(not cuts_network(), reason="the network is not cut on such a machine")


def confine(world: World) -> World:
    world.executor = LocalExecutor(
        world.store,
        jobs=2,
        scratch=world.scratch,
        module_paths=(STAGES,),
        sandbox=True,
        hidden=(world.directory / "home", world.store.root),
        failed_sandboxes=world.directory / "failed",
    )
    world.executor.start(world.outcomes.put)
    return world


@pytest.fixture
def confined(world: World) -> World:
    return confine(world)


@pytest.fixture
def secret(world: World) -> str:
    """A file of the user's home."""
    path = world.directory / "home" / "secret.txt"
    path.parent.mkdir()
    path.write_text("the secret")
    return str(path)


@pytest.mark.skipif(not os.access("/dev/shm", os.W_OK), reason="there is no shared memory")
def test_a_workspace_and_its_cache_may_lie_in_shared_memory() -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="mlcbuild-") as directory:
        world = confine(make_world(Path(directory)))
        given = world.entry("in/text.txt", "ab")
        request = world.stage("repeat", inputs=(given,), arguments=(("text", "in/text.txt"),), times=2)
        assert world.content(world.run(request)) == "abab"
        undeclared = Path(directory, "undeclared")
        undeclared.write_text("the secret")
        assert "which is not a declared input" in world.run(world.stage("read", path=str(undeclared))).message
        world.executor.close()


def test_inputs_are_read_and_outputs_written(confined: World) -> None:
    given = confined.entry("in/text.txt", "ab")
    request = confined.stage("repeat", inputs=(given,), arguments=(("text", "in/text.txt"),), times=2)
    assert confined.content(confined.run(request)) == "abab"
    tool = confined.tool("/bin/cp", "in/text.txt", "out.txt", inputs=(given,))
    assert confined.content(confined.run(tool)) == "ab"


def test_the_system_is_there(confined: World) -> None:
    assert confined.content(confined.run(confined.stage("use_the_system"))) == "Linux\n"


def test_a_compiler_works(confined: World) -> None:
    if not Path("/usr/bin/gcc").exists():
        pytest.skip("there is no gcc")
    source = confined.entry("x.c", '#include <stdio.h>\nint main(void) { return puts("x") < 0; }\n')
    request = confined.tool("/bin/sh", "-c", "gcc -o program x.c && ./program > out.txt", inputs=(source,))
    assert confined.content(confined.run(request)) == "x\n"


@pytest.mark.parametrize("swallow", [False, True])
def test_a_stage_that_reads_what_is_no_input_fails_by_path(confined: World, secret: str, swallow: bool) -> None:
    outcome = confined.run(confined.stage("read", path=secret, swallow=swallow))
    assert outcome.kind is OutcomeKind.FAILED
    assert outcome.message.startswith(
        f"//t:x Stage read {secret}, which is not a declared input\n"
        "  declare what it reads and makes, or build with --no-sandbox"
    )


def test_a_folder_that_is_listed_is_named(confined: World, secret: str) -> None:
    folder = str(Path(secret).parent)
    assert (
        f"read {folder}, which is not a declared input"
        in confined.run(confined.stage("list_folder", path=folder)).message
    )


def test_a_file_that_is_not_there_is_nobodys_fault(confined: World) -> None:
    outcome = confined.run(confined.stage("read", path=str(confined.directory / "absent")))
    assert "FileNotFoundError" in outcome.message


@needs_landlock
def test_native_code_of_a_stage_is_refused(confined: World, secret: str) -> None:
    assert confined.content(confined.run(confined.stage("read_by_library", path=secret))) == "Permission denied"


@needs_landlock
def test_another_file_of_the_workspace_is_no_input(confined: World) -> None:
    module = frozenset({"sample_stages"})
    path = str(STAGES / "sample_helper.py")
    assert Path(path).is_file()
    outcome = confined.run(confined.stage("read_by_library", path=path, allowed_modules=module))
    assert confined.content(outcome) == "Permission denied"


def test_a_module_that_the_key_does_not_count_is_named_as_a_module(world: World, tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own/helper.py").write_text("VALUE = 'x'\n")
    (tmp_path / "own/stage.py").write_text(
        "def run(*, out):\n    import importlib\n    out.write_text(importlib.import_module('own.helper').VALUE)\n"
    )
    executor = LocalExecutor(
        world.store, jobs=1, scratch=world.scratch, module_paths=(tmp_path,), sandbox=True, hidden=(world.store.root,)
    )
    executor.start(world.outcomes.put)
    executor.submit(world.stage("own.stage:run", allowed_modules=frozenset({"own.stage"})))
    assert "loaded own.helper, which is not in its key" in world.next().message
    executor.submit(world.stage("own.stage:run", allowed_modules=frozenset({"own.stage", "own.helper"})))
    assert world.content(world.next()) == "x"
    executor.close()


@needs_landlock
@pytest.mark.parametrize("command", ["cat {}", "cat < {}", "cp {} out.txt", "head -c 3 {}"])
def test_a_tool_that_reads_what_is_no_input_fails_by_path(confined: World, secret: str, command: str) -> None:
    outcome = confined.run(confined.tool("/bin/sh", "-ec", command.format(secret) + "; touch out.txt"))
    assert outcome.kind is OutcomeKind.FAILED
    assert f"it was denied access to {secret}, which is not a declared input" in outcome.message


@needs_landlock
def test_a_denied_name_that_is_not_utf_8_is_named(confined: World, secret: str) -> None:
    odd = Path(secret).with_name(os.fsdecode(b"p\xff"))
    odd.write_text("the secret")
    script = rf"""cat < "$(printf '{odd.parent}/p\377')"; touch out.txt"""
    outcome = confined.run(confined.tool("/bin/sh", "-ec", script))
    assert outcome.kind is OutcomeKind.FAILED
    assert readable(f"it was denied access to {odd}, which is not a declared input") in readable(outcome.message)


@needs_landlock
def test_a_tool_cannot_read_another_actions_blob(confined: World) -> None:
    other = confined.entry("x", "of another action")
    outcome = confined.run(confined.tool("/bin/cp", str(confined.store.path_of(other.digest)), "out.txt"))
    assert outcome.kind is OutcomeKind.FAILED


@needs_landlock
def test_nothing_is_written_outside(confined: World, secret: str) -> None:
    beside = str(Path(secret).with_name("new.txt"))
    assert "PermissionError" in confined.run(confined.stage("write_elsewhere", path=beside)).message
    outcome = confined.run(confined.tool("/bin/touch", beside))
    assert outcome.kind is OutcomeKind.FAILED
    assert f"it was denied access to {beside}, which is not a declared input" in outcome.message
    assert not Path(beside).exists()


@needs_filter
def test_the_network_is_cut(confined: World) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        outcome = confined.run(confined.stage("connect", port=server.getsockname()[1]))
    assert outcome.kind is OutcomeKind.FAILED
    assert "actions have no network" in outcome.message


def test_a_fetch_is_not_confined(confined: World, secret: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        requirements = ExecutionRequirements(network=True)
        request = confined.stage("connect", port=server.getsockname()[1], requirements=requirements)
        assert confined.content(confined.run(request)) == "connected"


def test_without_a_sandbox_nothing_of_this_is_refused(world: World, secret: str) -> None:
    assert world.content(world.run(world.stage("read", path=secret))) == "the secret"
    assert world.content(world.run(world.tool("/bin/cp", secret, "out.txt"))) == "the secret"


def test_existence_is_not_hidden(confined: World, secret: str) -> None:
    outcome = confined.run(confined.tool("/bin/sh", "-c", f"test -e {secret} && echo there > out.txt"))
    assert confined.content(outcome) == "there\n"


def test_a_failed_actions_directory_is_kept_and_can_be_run_again(confined: World) -> None:
    given = confined.entry("in/text.txt", "not what it wants")
    outcome = confined.run(
        confined.tool("/bin/grep", "-c", "$x it's", "in/text.txt", inputs=(given,), environment=(("A", "a  b"),))
    )
    kept = confined.directory / "failed" / "t_x_Command"
    assert outcome.message.endswith(f"its directory was kept: {kept} (run.sh in it runs the action again)")
    assert (kept / "in/text.txt").read_text() == "not what it wants"
    again = subprocess.run([kept / "run.sh"], capture_output=True, text=True, check=False)
    assert (again.returncode, again.stdout) == (1, "0\n")
    (kept / "in/text.txt").unlink()
    (kept / "in/text.txt").write_text("$x it's\n")
    assert subprocess.run([kept / "run.sh"], check=False).returncode == 0


def test_a_failed_stage_can_be_run_again(confined: World) -> None:
    outcome = confined.run(confined.stage("fail"))
    assert "upside down" in outcome.message
    again = subprocess.run(
        [confined.directory / "failed" / "t_x_Stage" / "run.sh"], capture_output=True, text=True, check=False
    )
    assert again.returncode == 1
    assert again.stdout.startswith("failed: ValueError: the weights are upside down")
    assert "sample_stages.py" in again.stderr


@needs_landlock
def test_confining_a_tool_confines_neither_its_server_nor_the_next_one(confined: World, secret: str) -> None:
    assert confined.run(confined.tool("/bin/cp", secret, "out.txt")).kind is OutcomeKind.FAILED
    trusted = confined.tool("/bin/cp", secret, "out.txt", requirements=ExecutionRequirements(network=True))
    assert confined.content(confined.run(trusted)) == "the secret"


def test_what_no_program_can_be_given_fails_a_confined_tool_alone(confined: World) -> None:
    outcome = confined.run(confined.tool("/bin/echo", "a\0b"))
    assert outcome.kind is OutcomeKind.FAILED
    assert "'/bin/echo' could not be run: embedded null byte" in outcome.message
    assert confined.run(confined.tool("/bin/touch", "out.txt")).kind is OutcomeKind.SUCCEEDED


def test_what_lies_beside_a_hidden_directory_is_listed_instead_of_what_holds_it(tmp_path: Path) -> None:
    for folder in ("opt/tool", "opt/home/ours", "opt/home/theirs"):
        (tmp_path / folder).mkdir(parents=True)
    root = str(tmp_path / "opt")
    assert sorted(without(root, [f"{root}/home/ours"])) == [f"{root}/home/theirs", f"{root}/tool"]
    assert without(root, [root]) == []
    assert without(f"{root}/tool", [f"{root}/home"]) == [f"{root}/tool"]


@pytest.mark.parametrize("is_checkout", [False, True])
def test_what_mlcbuild_is_installed_beside_is_seen_and_its_checkout_is_not(
    is_checkout: bool, tmp_path: Path, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("mlcbuild", "numpy", "rules"):
        (tmp_path / folder).mkdir()
    (tmp_path / "pyproject.toml").touch()  # of a distribution that installs it beside its package, by mistake
    if is_checkout:
        (tmp_path / "mlcbuild/rules").symlink_to("../rules")
    monkeypatch.setattr(mlcbuild, "__file__", str(tmp_path / "mlcbuild/__init__.py"))
    monkeypatch.syspath_prepend(str(tmp_path))
    policies = SandboxPolicies(workspace=(), hidden=(), bytecode=tmp_path / "bytecode")
    policy: Any = policies.of(world.stage("use_the_system"), tmp_path / "action", Layout(blobs=(), trees=()))
    assert (str(tmp_path) in policy["read"]) is not is_checkout
    assert f"{tmp_path}/mlcbuild" in policy["read"]
    assert (f"{tmp_path}/rules" in policy["read"]) is is_checkout


def test_an_ordinary_user_can_confine() -> None:
    """It needs no privileges: it runs as the user of the tests, or as the user "nobody" if that is root."""
    program = (
        "import ctypes, os, pathlib, platform, socket, struct, sys\n"
        "sandbox = {'__name__': 'sandbox'}\n"
        "exec(pathlib.Path(sys.argv[1]).read_text(), sandbox)\n"
        "if os.getuid() == 0:\n"
        "    os.setgid(65534); os.setuid(65534)\n"
        "sandbox['confine']({'read': [], 'write': [], 'directory': '/nowhere', 'network': False, 'gpus': False})\n"
        "for attempt in (lambda: open('/etc/passwd'), lambda: socket.socket(socket.AF_INET)):\n"
        "    try:\n"
        "        attempt()\n"
        "    except PermissionError:\n"
        "        print('refused')\n"
    )
    source = Path(__file__).parents[2] / "mlcbuild/execution/sandbox.py"
    done = subprocess.run([sys.executable, "-c", program, source], capture_output=True, text=True, check=False)
    assert done.stdout.count("refused") == (landlock_version() > 0) + cuts_network(), done.stderr
