"""What a build may do with a remote cache, and how often it tries: values, without addresses."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from mlcbuild.cache.remote.circuit_breaker import CircuitBreakerLimits
from mlcbuild.cache.remote.retrying import RetryPolicy


class Role(enum.Enum):
    """What a build may do with the remote; the value is its name in settings."""

    NONE = "none"
    READ = "read"
    READ_WRITE = "read-write"


class Upload(enum.Enum):
    """What a build that may write sends; the value is its name in settings and on the command line."""

    NEVER = "never"
    RESULTS = "results"  # of what ran in this build
    ALWAYS = "always"  # also what was found on the disk


class Purpose(enum.Enum):
    """What the remote is used for, as it is called in what people are told."""

    BUILD = "build"
    PULL = "pull"
    PUSH = "push"


@dataclass(frozen=True, kw_only=True)
class RemotePolicy:
    """`replaces`: results and their blobs take the place of what is there, without a question: whether a blob of the
    right size is damaged, only reading it would tell, which costs what sending it does. `asks_for_blobs`: a hit costs
    one more question, and in turn no blob has gone right after it. `drain_seconds`: how long the end of a build waits
    for uploads.
    """

    purpose: Purpose = Purpose.BUILD
    role: Role = Role.READ
    upload: Upload = Upload.RESULTS
    replaces: bool = False
    races: bool = True  # an action need not wait for an answer that takes longer than itself
    asks_for_blobs: bool = False
    drain_seconds: float = 60.0
    downloads: int = 16  # transfers at a time
    uploads: int = 8
    retries: RetryPolicy = field(default_factory=RetryPolicy)
    breaker: CircuitBreakerLimits = field(default_factory=CircuitBreakerLimits)

    def __post_init__(self) -> None:
        if self.drain_seconds < 0:
            raise ValueError(f"uploads cannot be waited for {self.drain_seconds} seconds")
        if self.downloads < 1 or self.uploads < 1:
            raise ValueError(f"at least one transfer at a time is needed: {self.downloads}, {self.uploads}")

    @property
    def sends(self) -> bool:
        return self.role is Role.READ_WRITE and self.upload is not Upload.NEVER
