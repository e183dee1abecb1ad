"""What every call to a node says about the build."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlcbuild.cache.digest import DigestFunction
from mlcbuild.cache.remote.configuration import RemoteConfiguration
from mlcbuild.execution.ray.environment_fingerprint import EnvironmentFingerprint
from mlcbuild.execution.ray.node_remote import remote_to_json
from mlcbuild.execution.ray.node_store import identity_of


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildContext:
    """`root` is the folder of the build's store. `idle_seconds` is after what time without a client a fork server on a
    node ends.
    """

    root: Path
    function: DigestFunction
    remote: RemoteConfiguration | None
    toolchains: tuple[str, ...]
    sandbox: bool
    idle_seconds: float

    def to_json(self, environment: EnvironmentFingerprint) -> dict[str, Any]:
        """With the digest of the environment that nodes must have."""
        return {
            "store": str(self.root.absolute()),
            "identity": identity_of(self.root) if self.root.is_dir() else "",
            "function": self.function.value,
            "toolchains": self.toolchains,
            "environment": environment.digest,
            "remote": remote_to_json(self.remote),
            "sandbox": self.sandbox,
            "idle_seconds": self.idle_seconds,
        }
