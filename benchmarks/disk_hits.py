"""What a hit in the disk cache costs per action, including placing its outputs.

    python -m benchmarks.disk_hits [--actions N] [--rounds N]

Method. A workspace of N `command` targets (`command_targets.py`) is built once, which fills a cache. Each round then
measures in turn:

- **hits**: the outputs and `.mlcbuild/` are removed, as in a new clone, and everything is built again. Every action is
  looked up in the cache, its result is read, and its output is verified and placed. Removing is not timed.
- **nothing to do, without the no-op check**: the same build again, with outputs in place. The workspace is loaded and
  analysed, and every action is found to be up to date. The record of the no-op check is removed before.

The cost of a hit with its placement is the difference of the two, divided by N; it must be below 1 ms. Also printed is
the whole build with hits divided by N, which includes the start of Python, loading, analysis and digests of sources.
Times are those of whole processes. Processor seconds are printed too, because other programs change them less.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
from pathlib import Path

from benchmarks.command_targets import build, forget_no_op_records, forget_outputs, processor_seconds, write_workspace

BOUND_MILLISECONDS = 1.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--actions", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="mlcbuild-disk-hits-"))
    try:
        workspace, cache = folder / "workspace", folder / "cache"
        write_workspace(workspace, arguments.actions)
        seconds, _ = build(workspace, cache)
        print(f"{arguments.actions:,} actions run, once: {seconds:.1f} s")
        hits: list[float] = []
        idle: list[float] = []
        used: list[float] = []
        for number in range(arguments.rounds + 1):
            forget_outputs(workspace)
            start = processor_seconds()
            took, told = build(workspace, cache)
            if f"{arguments.actions} from disk" not in told.replace(",", ""):
                raise SystemExit(f"not everything was a hit: {told}")
            between = processor_seconds()
            forget_no_op_records(workspace)
            took_idle, told = build(workspace, cache)
            if f"{arguments.actions} up to date" not in told.replace(",", ""):
                raise SystemExit(f"something was done: {told}")
            if number:  # The first round warms the kernel's caches.
                hits.append(took)
                idle.append(took_idle)
                used.append((between - start) - (processor_seconds() - between))
        each = sorted((hit - none) / arguments.actions * 1000 for hit, none in zip(hits, idle, strict=True))
        print(f"hits: median {statistics.median(hits):.3f} s, least {min(hits):.3f} s")
        print(f"nothing to do, the long way: median {statistics.median(idle):.3f} s, least {min(idle):.3f} s")
        print(f"whole build with hits: {statistics.median(hits) / arguments.actions * 1000:.3f} ms an action")
        print(
            f"a hit put in place: median {statistics.median(each):.3f} ms an action ({each[0]:.3f} to {each[-1]:.3f}), "
            f"bound {BOUND_MILLISECONDS:.0f} ms"
        )
        spent = sorted(seconds / arguments.actions * 1000 for seconds in used)
        print(f"of processors: median {statistics.median(spent):.3f} ms an action ({spent[0]:.3f} to {spent[-1]:.3f})")
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
