"""What a build may do with a remote cache, and how often it tries."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from mlcbuild.cache.remote.circuit_breaker import CircuitBreakerLimits
from mlcbuild.cache.remote.retrying import RetryPolicy


class RemoteRole(enum.Enum):
    """What a build may do with the remote cache. The value is its name in settings."""

    NONE = "none"
    READ = "read"
    READ_WRITE = "read-write"


class Upload(enum.Enum):
    """What a build that may write uploads. The value is its name in settings and on the command line."""

    NEVER = "never"
    RESULTS = "results"  # results of actions that ran in this build
    ALWAYS = "always"  # also results found on the disk


class Purpose(enum.Enum):
    """What the remote cache is used for. The value is its name in messages."""

    BUILD = "build"
    PULL = "pull"
    PUSH = "push"


@dataclass(frozen=True, kw_only=True)
class RemotePolicy:
    """How a build uses a remote cache.

    `replaces`: uploads replace results and blobs that exist, without asking first. Whether an existing blob is damaged
    could be found out only by reading it, which costs as much as sending it. `asks_for_blobs`: a hit costs one more
    request, which checks that all blobs of the result exist. `drain_seconds`: how long the end of a build waits for
    uploads.
    """

    purpose: Purpose = Purpose.BUILD
    role: RemoteRole = RemoteRole.READ
    upload: Upload = Upload.RESULTS
    replaces: bool = False
    races: bool = True  # an action may run while its lookup takes longer than the action
    asks_for_blobs: bool = False
    drain_seconds: float = 60.0
    downloads: int = 16  # simultaneous transfers
    uploads: int = 8
    retries: RetryPolicy = field(default_factory=RetryPolicy)
    breaker: CircuitBreakerLimits = field(default_factory=CircuitBreakerLimits)

    def __post_init__(self) -> None:
        if self.drain_seconds < 0:
            raise ValueError(f"the time to wait for uploads must not be negative: {self.drain_seconds}")
        if self.downloads < 1 or self.uploads < 1:
            raise ValueError(f"at least one transfer at a time is needed: {self.downloads}, {self.uploads}")

    @property
    def sends(self) -> bool:
        return self.role is RemoteRole.READ_WRITE and self.upload is not Upload.NEVER
