"""Phase0: what a library needs besides the model's own functions.

Reads `module` and `metadata` of Export, and `window` of ConfigureModel. Writes `module_out`, with the target's own KV
cache and the softmax that serving needs, and `metadata_out`, with the cache's shape. `phases.phase0` lists its passes,
`passes.phase0` has their code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mlcbuild.compiler import ir
from mlcbuild.compiler import metadata as metadata_file
from mlcbuild.compiler import target as targets
from mlcbuild.compiler.models.architecture.window import read_window
from mlcbuild.compiler.passes.dispatch_kv_cache_creation import find_geometry
from mlcbuild.compiler.passes.phase0 import PASSES
from mlcbuild.compiler.phases.phase0 import PHASE0
from mlcbuild.compiler.phases.pipeline import Passes, PhaseContext, Run, apply
from mlcbuild.compiler.phases.placed import added_passes


def run(
    *,
    module: Path,
    metadata: Path,
    window: Path,
    module_out: Path,
    metadata_out: Path,
    target: dict[str, Any],
    backend: Passes | None = None,
    passes: Sequence[Run] = (),
    places: Sequence[Mapping[str, str]] = (),
) -> None:
    """`backend` has the passes that run in place of the common ones; `passes` are a workspace's, which run at `places`
    (`phases.placed.added_passes`).

    Raises StageError for files that hold no module, metadata or window, for an unknown target, for a window that the
    target has no kernels for, and for a pass of a workspace that goes wrong.
    """
    document = metadata_file.read(metadata)
    before = ir.load_module(module)
    geometry = find_geometry(before)
    context = PhaseContext(target=targets.parse(target), metadata=document, window=read_window(window))
    added = added_passes(passes, places)
    made = apply(before, PHASE0, context, common=PASSES, backend=backend, added=added)
    ir.save_module(made, module_out)
    if geometry is not None:
        document = {**document, "kv_cache": dict(geometry.metadata)}
    metadata_file.write(document, metadata_out)
