"""About how long actions take, for whoever has measured nothing yet.

Only the ratios matter, and only where targets are split without timings (`mlcbuild.engine.timings`). The figures are
means of small llamas, as `benchmarks.shards` builds them: a model's size changes little of them.
"""

from __future__ import annotations

from mlcbuild.engine.action import Action
from mlcbuild.rules.kernels import KernelActions

_OTHER = 0.2
_SECONDS = {
    "Export": 0.7,
    "Phase0": 5.0,
    "Phase1": 0.7,
    "Phase2": 0.8,
    "Phase3": 0.6,
    "Partition": 1.5,
    "Lower": 0.6,
    "Link": 0.3,
    "ImportWeights": 2.0,
}
_KERNELS = 25.0  # of one library, for a host
_SHARDS_OF_WEIGHTS = 10.0


def expected_seconds(action: Action) -> float:
    """The seconds of one action."""
    return _SECONDS.get(action.mnemonic, _OTHER)


def expected_announced_seconds(action: Action) -> float:
    """The seconds of all actions that an action with a discoverer will announce."""
    if isinstance(action.discoverer, KernelActions):
        # A device's kernels are compiled twice: for the device, and what launches them for the host.
        return _KERNELS * (2 if len(action.discoverer.platform.kernel_groups) > 1 else 1)
    return _SHARDS_OF_WEIGHTS
