"""What a serving engine calls of a library says on a GPU what NumPy says. To be run where there is a GPU:

    python -m tests.gpu.engine_functions LIBRARY…

Each function of a library is called with random numbers for its vocabulary and several batches, by MLC-LLM's names and
arguments (`tests.engine_functions`). What a call takes, waited for, is told in microseconds.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

from tests.engine_functions import CHECKS, FUNCTIONS, Engine, Presence

BATCHES = (1, 4, 64)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("libraries", nargs="+", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    failed = False
    for library in given.libraries:
        engine = Engine(library)
        for name, presence in FUNCTIONS.items():
            if presence in (Presence.ALL, Presence.GPU) and not engine.has(name):
                failed = True
                print(f"{library}: there is no {name}")
        for check in (*CHECKS[Presence.ALL], *CHECKS[Presence.GPU]):
            for batch in BATCHES:
                try:
                    check(engine, np.random.default_rng(given.seed), batch)
                except AssertionError as error:
                    failed = True
                    print(f"{library}: {check.__name__} with a batch of {batch} FAILED: {error}")
        print(library, json.dumps({name: round(took, 1) for name, took in engine.took.items()}, indent=1))
    raise SystemExit(failed)


if __name__ == "__main__":
    main()
