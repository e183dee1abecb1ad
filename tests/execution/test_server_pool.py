"""Fork servers that outlive a build: they are shared, never stale, and end when they are not used."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mlcbuild.engine.executor import OutcomeKind
from mlcbuild.errors import LocalEnvironmentError
from mlcbuild.execution import environment, fork_client, server_pool
from mlcbuild.execution.local import LocalExecutor
from mlcbuild.execution.server_pool import PooledForkClient, pool_directory, pooled_servers, shut_down
from tests.execution.conftest import STAGES

if TYPE_CHECKING:
    from tests.execution.conftest import World


@pytest.fixture
def pool() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="pool-") as name:  # short, for a socket's path
        yield Path(name)
        pids = [member.pid for member in pooled_servers(Path(name))]
        shut_down(Path(name))
        for pid in pids:
            wait_until(lambda pid=pid: not is_running(pid))  # type: ignore[misc]


@pytest.fixture
def executor(world: World, pool: Path) -> Iterator[Callable[[], LocalExecutor]]:
    made = []

    def start() -> LocalExecutor:
        made.append(LocalExecutor(world.store, jobs=2, scratch=world.scratch, module_paths=(STAGES,), pool=pool))
        made[-1].start(world.outcomes.put)
        return made[-1]

    yield start
    for one in made:
        one.close()


def server(pool: Path, *, preload: tuple[str, ...] = (), idle_seconds: float = 60.0) -> PooledForkClient:
    variables = environment.of_server()
    return PooledForkClient(preload=preload, hide=(), variables=variables, directory=pool, idle_seconds=idle_seconds)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def pid_of(one: PooledForkClient) -> int:
    pid = one.hello()["ready"]
    assert isinstance(pid, int)
    return pid


def test_two_builds_are_served_by_one_server(world: World, pool: Path, executor: Callable[[], LocalExecutor]) -> None:
    seen = []
    for _ in range(2):
        running = executor()
        running.submit(world.stage("surroundings"))
        assert world.next().kind is OutcomeKind.SUCCEEDED
        running.close()
        seen += [member.pid for member in pooled_servers(pool)]
    assert len(seen) == 2
    assert len(set(seen)) == 1


def test_two_that_start_at_once_share_a_server(pool: Path) -> None:
    pids: list[int] = []

    def use() -> None:
        one = server(pool)
        pids.append(pid_of(one))
        one.close()

    threads = [threading.Thread(target=use) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(pids) == 4
    assert len(set(pids)) == 1


def test_a_killed_server_is_replaced(world: World, pool: Path, executor: Callable[[], LocalExecutor]) -> None:
    running = executor()
    for _ in range(2):
        running.submit(world.stage("surroundings"))
        assert world.next().kind is OutcomeKind.SUCCEEDED
        (member,) = pooled_servers(pool)
        os.kill(member.pid, signal.SIGKILL)
        wait_until(lambda pid=member.pid: not is_running(pid))  # type: ignore[misc]
    assert pooled_servers(pool) == []


def test_a_stale_socket_is_no_obstacle(pool: Path) -> None:
    first = server(pool)
    os.kill(pid_of(first), signal.SIGKILL)
    second = server(pool)
    assert pid_of(second) != 0
    first.close()
    second.close()


def test_a_server_with_no_client_ends(pool: Path) -> None:
    one = server(pool, idle_seconds=0.2)
    pid = pid_of(one)
    time.sleep(0.5)
    assert is_running(pid)  # it has a client
    one.close()
    wait_until(lambda: not is_running(pid))
    assert list(pool.glob("*.sock")) == []


def test_a_server_of_changed_libraries_takes_no_clients(pool: Path, tmp_path: Path) -> None:
    library = tmp_path / "library.py"
    library.write_text("VALUE = 1\n")
    variables = {**environment.of_server(), "PYTHONPATH": str(tmp_path)}
    first = PooledForkClient(preload=("library",), hide=(), variables=variables, directory=pool)
    pid = pid_of(first)
    library.write_text("VALUE = 2\n")
    second = PooledForkClient(preload=("library",), hide=(), variables=variables, directory=pool)
    assert pid_of(second) != pid
    assert is_running(pid)  # for as long as its client stays
    first.close()
    wait_until(lambda: not is_running(pid))
    assert [member.pid for member in pooled_servers(pool)] == [pid_of(second)]
    second.close()


def test_what_it_holds_and_its_variables_tell_servers_apart(pool: Path) -> None:
    servers = [
        server(pool),
        server(pool, preload=("json",)),
        PooledForkClient(preload=(), hide=(), variables={**environment.of_server(), "TZ": "UTC"}, directory=pool),
    ]
    assert len({pid_of(one) for one in servers}) == 3
    assert sorted(member.preload for member in pooled_servers(pool)) == [(), (), ("json",)]
    for one in servers:
        one.close()


def test_two_installations_have_servers_of_their_own(
    pool: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Equal ones too: an action may read the files of its own installation alone."""
    first = server(pool)
    for file in fork_client.PROGRAM.parent.glob("*.py"):
        shutil.copyfile(file, tmp_path / file.name)
    for module in (fork_client, server_pool):
        monkeypatch.setattr(module, "PROGRAM", tmp_path / fork_client.PROGRAM.name)
    second = server(pool)
    assert pid_of(first) != pid_of(second)
    first.close()
    second.close()


def test_the_actions_of_a_client_that_dies_are_killed_and_those_of_others_go_on(world: World, pool: Path) -> None:
    program = (
        "import sys\n"
        "from pathlib import Path\n"
        "from mlcbuild.execution import environment\n"
        "from mlcbuild.execution.server_pool import PooledForkClient\n"
        "directory = Path(sys.argv[2])\n"
        "one = PooledForkClient(preload=(), hide=(), variables=environment.of_server(), directory=Path(sys.argv[1]))\n"
        "script = 'sleep 1000 & echo $$ $! > pids.new; mv pids.new pids; wait'\n"
        "one.launch({'directory': str(directory), 'environment': environment.FIXED,\n"
        "            'arguments': ['/bin/sh', '-c', script]}).wait()\n"
    )
    clients, running = [], []
    for name in ("one", "other"):
        (world.directory / name).mkdir()
        command = [sys.executable, "-c", program, str(pool), str(world.directory / name)]
        clients.append(subprocess.Popen(command))
        running.append([int(pid) for pid in world.wait_for(world.directory / name / "pids").split()])
    assert [member.running for member in pooled_servers(pool)] == [2]
    clients[0].kill()
    clients[0].wait()
    assert all(world.is_gone(pid) for pid in running[0])
    assert all(is_running(pid) for pid in running[1])
    clients[1].kill()
    clients[1].wait()
    assert all(world.is_gone(pid) for pid in running[1])
    wait_until(lambda: [member.running for member in pooled_servers(pool)] == [0])


def test_shutting_down_lets_what_runs_come_to_its_end(
    world: World, pool: Path, executor: Callable[[], LocalExecutor]
) -> None:
    running = executor()
    started = world.directory / "started"
    running.submit(world.tool("/bin/sh", "-c", f"touch {started}; sleep 0.5; touch out.txt"))
    world.wait_for(started)
    (member,) = pooled_servers(pool)
    assert shut_down(pool) == 1
    assert pooled_servers(pool) == []
    assert world.next().kind is OutcomeKind.SUCCEEDED
    running.close()
    wait_until(lambda: not is_running(member.pid))
    assert shut_down(pool) == 0


def test_a_library_that_cannot_be_imported_is_told(pool: Path, tmp_path: Path) -> None:
    (tmp_path / "broken_library.py").write_text("import no_such_library\n")
    variables = {**environment.of_server(), "PYTHONPATH": str(tmp_path)}
    one = PooledForkClient(preload=("broken_library",), hide=(), variables=variables, directory=pool)
    end = one.launch({}).wait()
    assert end.status is None
    assert one.start_error() == "ModuleNotFoundError: No module named 'no_such_library'"
    one.close()
    assert pooled_servers(pool) == []


def test_a_directory_of_somebody_else_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/usr")
    one = server(tmp_path / "link")
    with pytest.raises(LocalEnvironmentError, match="not a directory of yours"):
        one.launch({})


def test_nobody_else_can_reach_a_server(pool: Path) -> None:
    pool.chmod(0o755)
    one = server(pool)
    pid_of(one)
    one.close()
    assert pool.stat().st_mode & 0o777 == 0o700


def test_a_socket_of_somebody_else_is_nobody(pool: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as stranger:
        stranger.bind(str(pool / "x.sock"))
        assert pooled_servers(pool) == []  # it does not listen


def test_sockets_lie_where_their_paths_are_short_enough(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as short:  # pytest's own may be too long already
        assert pool_directory({"XDG_RUNTIME_DIR": short}, Path("/c")) == Path(short) / "mlcbuild"
    assert pool_directory({"XDG_RUNTIME_DIR": "/not/there"}, Path("/c/workers")) == Path("/c/workers")
    assert pool_directory({}, Path("/" + "c" * 90)).name == f"mlcbuild-{os.geteuid()}"
