"""Where a workspace may add a pass: before or after any pass that a phase lists.

Rules read it, stages do not: a pass that is added to one phase's list is nothing to the keys of the others.
"""

from __future__ import annotations

from collections.abc import Mapping

from mlcbuild.compiler.phases.entry import Entry
from mlcbuild.compiler.phases.phase0 import PHASE0
from mlcbuild.compiler.phases.phase1 import PHASE1
from mlcbuild.compiler.phases.phase2 import PHASE2
from mlcbuild.compiler.phases.phase3 import PHASE3
from mlcbuild.compiler.phases.phase4 import PHASE4
from mlcbuild.compiler.phases.phase5 import PHASE5

PHASES: Mapping[str, tuple[Entry, ...]] = {
    "phase0": PHASE0,
    "phase1": PHASE1,
    "phase2": PHASE2,
    "phase3": PHASE3,
    "phase5": PHASE5,
}
PLACES: Mapping[str, str] = {entry.name: phase for phase, entries in PHASES.items() for entry in entries}
"""The phase of each place."""

OF_KERNELS: frozenset[str] = frozenset(entry.name for entry in PHASE4)
"""Names of passes where modules are no longer whole: each kernel is scheduled in an action of its own."""
