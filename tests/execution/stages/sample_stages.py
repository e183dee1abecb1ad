"""Small stages that tests run in real workers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any


def repeat(*, text: Path, out: Path, times: int) -> None:
    out.write_text(text.read_text() * times)


def describe(*, one: Path, several: tuple[Path, ...], tree: Path, members: tuple[Path, ...], out: Path) -> None:
    described = {
        "one": str(one),
        "several": [str(path) for path in several],
        "tree": sorted(str(path) for path in tree.rglob("*") if path.is_file()),
        "members": [str(path) for path in members],
        "contents": [path.read_text() for path in (one, *several, *members)],
    }
    out.write_text(json.dumps(described))


def loaded(*, out: Path, modules: list[str]) -> None:
    """Which of these modules were there before the stage imported anything."""
    out.write_text(" ".join(name for name in modules if name in sys.modules))


def plugged(*, one: object, several: tuple[object, ...], out: Path) -> None:
    out.write_text(json.dumps([one, several]))


def surroundings(*, out: Path) -> None:
    described = {
        "environment": dict(os.environ),
        "directory": str(Path.cwd()),
        "files": sorted(path.name for path in Path().iterdir()),
        "hash_seed": sys.flags.hash_randomization,
        "hash": hash("a text"),
        "session_leader": os.getsid(0) == os.getpid(),
        "descriptors": [path.name for path in Path("/proc/self/fd").iterdir()],
        "input": sys.stdin.read(),
    }
    out.write_text(json.dumps(described))


def hinted(*, out: Path, hints: dict[str, str]) -> None:
    out.write_text(json.dumps(hints))


def segfault(*, out: Path) -> None:
    print("about to crash")
    os.kill(os.getpid(), signal.SIGSEGV)


def killed(*, out: Path) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def leave(*, out: Path) -> None:
    os._exit(7)


def fail(*, out: Path) -> None:
    raise ValueError("the weights are\nupside down\n\nand so on")


def refuse(*, out: Path) -> None:
    from mlcbuild.errors import StageError

    raise StageError("weights.gguf is truncated", advice=("download it again",))


def out_of_memory(*, out: Path) -> None:
    raise MemoryError


def disk_full(*, out: Path) -> None:
    Path("/dev/full").write_text("x")


def nothing(*, out: Path) -> None:
    Path("elsewhere.txt").write_text("x")


def write_tree(*, out: Path) -> None:
    (out / "b").mkdir()
    (out / "b" / "two.txt").write_text("2")
    (out / "a.sh").write_text("1")
    (out / "a.sh").chmod(0o755)
    (out / "again").symlink_to("b/two.txt")
    (out / "c").symlink_to("b")


def empty_tree(*, out: Path) -> None:
    pass


def escaping_link(*, out: Path) -> None:
    (out / "link").symlink_to("../../../../etc/passwd")


def absolute_link(*, out: Path) -> None:
    (out / "file").write_text("x")
    (out / "link").symlink_to(Path.cwd() / out / "file")


def looping_link(*, out: Path) -> None:
    (out / "link").symlink_to(".")


def pipe(*, out: Path) -> None:
    os.mkfifo(out / "pipe")


def store_input_again(*, text: Path, out: Path) -> None:
    stored = text.resolve()
    copy = stored.with_name("copy")
    copy.write_text(stored.read_text())
    copy.chmod(0o444)
    copy.rename(stored)
    out.write_text(text.read_text())


def write_to_input(*, text: Path, out: Path) -> None:
    text.resolve().chmod(0o644)
    text.write_text("tampered")
    out.write_text("x")


def loop(*, out: Path, pids: str) -> None:
    """Run for ever, with a child that does too; tell both process ids."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
    Path(pids + ".new").write_text(f"{os.getpid()} {child.pid}")
    Path(pids + ".new").rename(pids)
    while True:
        time.sleep(1)


def leave_child_behind(*, out: Path, pids: str, daemon: bool) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(1000)"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=daemon,
    )
    Path(pids).write_text(str(child.pid))
    out.write_text("x")


def print_much(*, out: Path, lines: int) -> None:
    print("the first line")
    for _ in range(lines):
        print("y" * 99)
    print("the last line")
    out.write_text("x")


def meet(*, out: Path, here: str, there: str) -> None:
    """Ends only if its partner runs at the same time."""
    Path(here).touch()
    deadline = time.monotonic() + 20
    while not Path(there).exists():
        if time.monotonic() > deadline:
            raise TimeoutError("the other action never ran")
        time.sleep(0.01)
    out.write_text("x")


def load_helper(*, out: Path) -> None:
    import sample_helper  # type: ignore[import-not-found]  # where the test puts it

    out.write_text(sample_helper.VALUE)


def sleep(*, out: Path, seconds: float) -> None:
    time.sleep(seconds)
    out.write_text("x")


def lock_directory(*, out: Path) -> None:
    out.write_text("x")
    inner = Path("inner")
    inner.mkdir()
    (inner / "file").write_text("x")
    inner.chmod(0o500)


def allocate(*, out: Path, mebibytes: int, seconds: float, in_child: bool = False, group: str = "") -> None:
    """Hold so much memory for a while, here or in a child, in a control group if one is named."""
    if group:
        Path(group, "cgroup.procs").write_text(str(os.getpid()))
    program = f"import time; held = b'x' * ({mebibytes} << 20); time.sleep({seconds})"
    if in_child:
        subprocess.run([sys.executable, "-c", program], check=True)
    else:
        exec(program)
    out.write_text("x")


def read(*, out: Path, path: str, swallow: bool = False) -> None:
    """Copy a file that is no input; go on without it where it is refused, if told so."""
    try:
        out.write_text(Path(path).read_text())
    except PermissionError:
        if not swallow:
            raise
        out.write_text("nothing")


def lock(*, out: Path) -> None:
    import multiprocessing

    multiprocessing.Lock()
    out.write_text("locked")


def forge(*, out: Path, cache: str) -> None:
    """Leave something for the next stage where compiled code is kept."""
    try:
        (Path(cache) / "forged").write_text("left")
        out.write_text("written")
    except PermissionError:
        out.write_text("refused")


def compiled(*, out: Path) -> None:
    """Which of the sources that this process loaded it had to compile."""
    loader: Any = globals()["__loader__"]
    out.write_text(str(type(loader).get_code.__globals__["COMPILED"]))


def list_folder(*, out: Path, path: str) -> None:
    out.write_text(" ".join(entry.name for entry in Path(path).iterdir()))


def read_by_library(*, out: Path, path: str) -> None:
    """As native code does, which no audit hook sees."""
    import ctypes

    library = ctypes.CDLL(None, use_errno=True)
    descriptor = library.open(os.fsencode(path), os.O_RDONLY)
    out.write_text(os.read(descriptor, 100).decode() if descriptor >= 0 else os.strerror(ctypes.get_errno()))


def write_elsewhere(*, out: Path, path: str) -> None:
    Path(path).write_text("x")
    out.write_text("x")


def connect(*, out: Path, port: int) -> None:
    import socket

    with socket.create_connection(("127.0.0.1", port)):
        out.write_text("connected")


def use_the_system(*, out: Path) -> None:
    """What stages may rely on."""
    import tempfile
    from concurrent.futures import ThreadPoolExecutor

    with tempfile.TemporaryFile() as temporary, ThreadPoolExecutor(1) as pool:
        temporary.write(bytes(pool.map(abs, [-1])))
    Path("here").mkdir()
    out.with_suffix(".part").write_text(
        subprocess.run(["/bin/uname"], capture_output=True, text=True, check=True).stdout
    )
    out.with_suffix(".part").rename(Path("here") / "name")
    (Path("here") / "name").rename(out)
    Path("/dev/null").write_text("x")
    with Path("/dev/urandom").open("rb") as stream:
        stream.read(1)
    Path("/proc/self/status").read_text()


def use_folder(*, folder: Path, out: Path, deep: str) -> None:
    """What is in an input folder, what a file and a program of it say, and what comes of writing to it."""
    said = subprocess.run([str(folder / "bin" / "tool")], capture_output=True, text=True, check=True).stdout
    text = (folder / deep).read_text()
    wrote = []
    for path in (folder / "more.txt", folder / deep, folder / "bin" / "tool"):
        try:
            path.write_text("x")
            wrote.append(path.name)
        except OSError:
            pass
    told = {
        "files": sum(path.is_file() for path in folder.rglob("*")),
        "text": text,
        "said": said,
        "wrote": wrote,
        "real": os.path.realpath(folder),
    }
    out.write_text(json.dumps(told))
