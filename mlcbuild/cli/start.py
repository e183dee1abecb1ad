"""The program `mlcbuild`. Ctrl-C while it is imported ends it as it does later: without a traceback."""

import os
import signal
from typing import NoReturn

_INTERRUPTED = 8  # ExitCode.INTERRUPTED, which is not imported yet


def _end(*_: object) -> NoReturn:
    os.write(2, b"interrupted\n")
    os._exit(_INTERRUPTED)


def main() -> int:
    """Import the command line and run it. Returns the exit code."""
    usual = signal.getsignal(signal.SIGINT)
    if usual is signal.default_int_handler:  # else it is ignored, as in the background of a script
        signal.signal(signal.SIGINT, _end)
    from mlcbuild.cli.main import main as run

    if usual is signal.default_int_handler:
        signal.signal(signal.SIGINT, usual)
    return run()
