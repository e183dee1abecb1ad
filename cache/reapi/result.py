"""What an action produced: its outputs, its metadata, and the ActionResult."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from mlcbuild.cache import wire
from mlcbuild.cache.digest import Digest
from mlcbuild.cache.reapi.fields import digest_field, optional_digest, required_digest


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputFile:
    """`OutputFile {1 path, 2 digest, 4 is_executable, 5 contents}`. `contents` are inlined bytes, or empty."""

    path: str
    digest: Digest
    is_executable: bool = False
    contents: bytes = b""

    def __post_init__(self) -> None:
        if self.contents and len(self.contents) != self.digest.size_bytes:
            raise ValueError(f"{self.path}: {len(self.contents)} bytes inlined, its digest says {self.digest}")

    def encode(self) -> bytes:
        return b"".join(
            [
                wire.text_field(1, self.path),
                digest_field(2, self.digest),
                wire.integer_field(4, self.is_executable),
                wire.bytes_field(5, self.contents) if self.contents else b"",
            ]
        )

    @classmethod
    def decode(cls, data: bytes) -> Self:
        fields = wire.parse(data)
        return cls(
            path=wire.one_text(fields, 1),
            digest=required_digest(fields, 2, "an OutputFile"),
            is_executable=wire.one_flag(fields, 4),
            contents=wire.one_bytes(fields, 5) or b"",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputDirectory:
    """`OutputDirectory {1 path, 3 tree_digest, 4 is_topologically_sorted}`."""

    path: str
    tree_digest: Digest
    is_topologically_sorted: bool = False

    def encode(self) -> bytes:
        return b"".join(
            [
                wire.text_field(1, self.path),
                digest_field(3, self.tree_digest),
                wire.integer_field(4, self.is_topologically_sorted),
            ]
        )

    @classmethod
    def decode(cls, data: bytes) -> Self:
        fields = wire.parse(data)
        return cls(
            path=wire.one_text(fields, 1),
            tree_digest=required_digest(fields, 3, "an OutputDirectory"),
            is_topologically_sorted=wire.one_flag(fields, 4),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputSymlink:
    """`OutputSymlink {1 path, 2 target}`."""

    path: str
    target: str

    def encode(self) -> bytes:
        return wire.text_field(1, self.path) + wire.text_field(2, self.target)

    @classmethod
    def decode(cls, data: bytes) -> Self:
        fields = wire.parse(data)
        return cls(path=wire.one_text(fields, 1), target=wire.one_text(fields, 2))


@dataclass(frozen=True, slots=True, kw_only=True)
class AnyMessage:
    """`google.protobuf.Any {1 type_url, 2 value}`."""

    type_url: str
    value: bytes

    def encode(self) -> bytes:
        return wire.text_field(1, self.type_url) + (wire.bytes_field(2, self.value) if self.value else b"")

    @classmethod
    def decode(cls, data: bytes) -> Self:
        fields = wire.parse(data)
        return cls(type_url=wire.one_text(fields, 1), value=wire.one_bytes(fields, 2) or b"")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutedActionMetadata:
    """`ExecutedActionMetadata {1 worker, 11 auxiliary_metadata}`.

    Timestamps are neither read nor written, so that equal work has equal bytes.
    """

    worker: str = ""
    auxiliary_metadata: tuple[AnyMessage, ...] = ()

    def encode(self) -> bytes:
        return b"".join(
            [
                wire.text_field(1, self.worker),
                *(wire.bytes_field(11, item.encode()) for item in self.auxiliary_metadata),
            ]
        )

    @classmethod
    def decode(cls, data: bytes) -> Self:
        fields = wire.parse(data)
        return cls(
            worker=wire.one_text(fields, 1),
            auxiliary_metadata=tuple(AnyMessage.decode(item) for item in wire.all_bytes(fields, 11)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionResult:
    """The result of an action: a value of the action cache.

    `ActionResult {2 output_files, 3 output_directories, 4 exit_code, 5 stdout_raw, 6 stdout_digest, 7
    stderr_raw, 8 stderr_digest, 9 execution_metadata, 12 output_symlinks}`. REAPI recommends to always
    name a worker, so that no result has zero bytes.
    """

    output_files: tuple[OutputFile, ...] = ()
    output_directories: tuple[OutputDirectory, ...] = ()
    output_symlinks: tuple[OutputSymlink, ...] = ()
    exit_code: int = 0
    stdout_raw: bytes = b""
    stdout_digest: Digest | None = None
    stderr_raw: bytes = b""
    stderr_digest: Digest | None = None
    execution_metadata: ExecutedActionMetadata | None = None

    def __post_init__(self) -> None:
        if not -(1 << 31) <= self.exit_code < 1 << 31:
            raise ValueError(f"not a 32-bit exit code: {self.exit_code}")

    def encode(self) -> bytes:
        metadata = self.execution_metadata
        return b"".join(
            [
                *(wire.bytes_field(2, item.encode()) for item in self.output_files),
                *(wire.bytes_field(3, item.encode()) for item in self.output_directories),
                wire.integer_field(4, self.exit_code),
                wire.bytes_field(5, self.stdout_raw) if self.stdout_raw else b"",
                digest_field(6, self.stdout_digest),
                wire.bytes_field(7, self.stderr_raw) if self.stderr_raw else b"",
                digest_field(8, self.stderr_digest),
                b"" if metadata is None else wire.bytes_field(9, metadata.encode()),
                *(wire.bytes_field(12, item.encode()) for item in self.output_symlinks),
            ]
        )

    @classmethod
    def decode(cls, data: bytes) -> Self:
        fields = wire.parse(data)
        metadata = wire.one_bytes(fields, 9)
        return cls(
            output_files=tuple(OutputFile.decode(item) for item in wire.all_bytes(fields, 2)),
            output_directories=tuple(OutputDirectory.decode(item) for item in wire.all_bytes(fields, 3)),
            output_symlinks=tuple(OutputSymlink.decode(item) for item in wire.all_bytes(fields, 12)),
            exit_code=wire.one_integer(fields, 4),
            stdout_raw=wire.one_bytes(fields, 5) or b"",
            stdout_digest=optional_digest(fields, 6),
            stderr_raw=wire.one_bytes(fields, 7) or b"",
            stderr_digest=optional_digest(fields, 8),
            execution_metadata=None if metadata is None else ExecutedActionMetadata.decode(metadata),
        )
