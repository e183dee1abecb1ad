"""About how long actions take, for whoever has measured nothing yet.

The figures are of a 8-billion-parameter llama on one core of a server of 2023, without weights. Only their ratios
matter, and only where targets are split without timings of their own (`mlcbuild.engine.timings`).
"""

from __future__ import annotations

from mlcbuild.engine.action import Action

_OTHER = 0.3
_SECONDS = {
    "Export": 3.0,
    "Phase0": 2.0,
    "Phase1": 1.0,
    "Phase2": 2.0,
    "Phase3": 1.0,
    "Partition": 1.0,
    "Lower": 3.0,
    "Link": 0.5,
    "ImportWeights": 5.0,
}
# Of all actions together that one announces: schedules and kernels, or shards of weights.
_ANNOUNCED = {"Partition": 60.0, "ImportWeights": 30.0}


def expected_seconds(action: Action) -> float:
    """The seconds of one action."""
    return _SECONDS.get(action.mnemonic, _OTHER)


def expected_announced_seconds(action: Action) -> float:
    """The seconds of all actions that an action with a discoverer will announce."""
    return _ANNOUNCED.get(action.mnemonic, _OTHER)
