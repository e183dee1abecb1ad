"""Shows on a terminal that weights are loaded, where that takes longer than a second."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from mlcbuild.cli.arguments.options import GlobalOptions
from mlcbuild.cli.output.slow_progress import slow_progress
from mlcbuild.cli.output.terminal import is_terminal


@contextmanager
def loading(options: GlobalOptions) -> Iterator[Callable[[int, int], None]]:
    """What is to be called with the number of tensors that are loaded, and of all."""
    if not is_terminal(sys.stderr, options.environment):
        yield lambda _done, _total: None
        return
    with slow_progress(options) as progress:
        yield lambda done, total: progress("loading the weights", done, total)
