"""The names of objects in a bucket.

::

    <prefix>/v1/<function>/cas/<2>/<hash>    a blob, exactly its bytes
                           ac/<2>/<hash>     a result, by the hash of its key

or, in a bucket that bazel-remote uses too (`--s3.bucket`, its `cache/s3proxy`, with `--storage_mode uncompressed`)::

    <prefix>/cas/<2>/<hash>
             ac/<2>/<hash>

By default bazel-remote compresses blobs and writes them to `cas.v2/<2>/<hash>` in a format of its own. mlcbuild does
not see these blobs, and bazel-remote does not see those of mlcbuild, but both see all results. So both must use the
same mode. bazel-remote supports only SHA-256. The two digits spread the keys, because servers limit requests by leading
characters.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from mlcbuild.cache.digest import Digest, DigestFunction

VERSION = "v1"


class Layout(enum.Enum):
    """One of the two layouts. The value is its name in settings."""

    NATIVE = "mlcbuild"
    BAZEL_REMOTE = "bazel-remote"


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectKeys:
    """The keys of objects below `prefix`, which has no leading or trailing slash.

    Raises ValueError for bazel-remote's layout with another digest function than SHA-256.
    """

    prefix: str
    function: DigestFunction
    layout: Layout = Layout.NATIVE

    def __post_init__(self) -> None:
        if self.layout is Layout.BAZEL_REMOTE and self.function is not DigestFunction.SHA256:
            raise ValueError(f"bazel-remote supports only sha256, not {self.function.value!r}")

    def blob(self, digest: Digest) -> str:
        return f"{self._base()}cas/{digest.hash[:2]}/{digest.hash}"

    def result(self, key: Digest) -> str:
        return f"{self._base()}ac/{key.hash[:2]}/{key.hash}"

    def _base(self) -> str:
        prefix = f"{self.prefix}/" if self.prefix else ""
        return prefix if self.layout is Layout.BAZEL_REMOTE else f"{prefix}{VERSION}/{self.function.value}/"
