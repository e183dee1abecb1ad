"""Makes what renders files, in one workspace."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mlcbuild.cache.digest import DigestFunction
from mlcbuild.cache.disk import DiskStore, default_root
from mlcbuild.cli.arguments.options import GlobalOptions
from mlcbuild.cli.output.slow_progress import slow_progress
from mlcbuild.cli.rendering.renderer import Renderer
from mlcbuild.cli.rendering.stage_runner import StageRunner
from mlcbuild.cli.workspace.opening import OpenWorkspace
from mlcbuild.engine.implementation import Implementations
from mlcbuild.engine.key_cache import KeyCache
from mlcbuild.engine.last_build import LastBuild
from mlcbuild.toolchains.table import Toolchains


@contextmanager
def renderer_of(workspace: OpenWorkspace, disk_cache: Path | None, options: GlobalOptions) -> Iterator[Renderer]:
    """A renderer of files of the disk cache, which shows its progress. It takes no lock: a build may run meanwhile."""
    state = workspace.state_directory
    function = DigestFunction(workspace.settings.digest)
    store = DiskStore(disk_cache.absolute() if disk_cache else default_root(), function)
    toolchains = Toolchains(state / "toolchains.json")
    implementations = Implementations(
        state / "implementations.json", distributions=toolchains.distributions, workspace=workspace.root
    )
    keys = KeyCache(
        toolchains=toolchains, implementations=implementations, function=function, last_build=LastBuild(None)
    )
    runner = StageRunner(workspace=workspace, store=store, keys=keys, environment=options.environment)
    try:
        with slow_progress(options) as progress:
            yield Renderer(
                store=store,
                runner=runner,
                progress=lambda done, total: progress("rendering", done, total),
            )
        if state.is_dir():
            toolchains.save()
            implementations.save()
    finally:
        store.release()
