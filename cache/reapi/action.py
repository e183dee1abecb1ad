"""What an action is: Platform, Command and Action."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from mlcbuild.cache import wire
from mlcbuild.cache.digest import Digest
from mlcbuild.cache.reapi.fields import check_ascending, digest_field, pairs, required_digest


@dataclass(frozen=True, slots=True, kw_only=True)
class Platform:
    """`Platform {1 properties {1 name, 2 value}}`, sorted by name, then value."""

    properties: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        if list(self.properties) != sorted(self.properties):
            raise ValueError(f"platform properties are not sorted: {self.properties!r}")

    def encode(self) -> bytes:
        return b"".join(
            wire.bytes_field(1, wire.text_field(1, name) + wire.text_field(2, value)) for name, value in self.properties
        )

    @classmethod
    def decode(cls, data: bytes) -> Self:
        return cls(properties=pairs(wire.parse(data), 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """`Command {1 arguments, 2 environment_variables, 6 working_directory, 7 output_paths}`.

    `environment` is sorted by name, `output_paths` sorted and unique, without a slash at either end.
    """

    arguments: tuple[str, ...]
    environment: tuple[tuple[str, str], ...] = ()
    working_directory: str = ""
    output_paths: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_ascending("environment variables", (name for name, _ in self.environment))
        check_ascending("output paths", self.output_paths)
        for path in self.output_paths:
            if path.startswith("/") or path.endswith("/"):
                raise ValueError(f"an output path with a slash at its end: {path!r}")

    def encode(self) -> bytes:
        return b"".join(
            [
                *(wire.bytes_field(1, argument.encode()) for argument in self.arguments),
                *(
                    wire.bytes_field(2, wire.text_field(1, name) + wire.text_field(2, value))
                    for name, value in self.environment
                ),
                wire.text_field(6, self.working_directory),
                *(wire.bytes_field(7, path.encode()) for path in self.output_paths),
            ]
        )

    @classmethod
    def decode(cls, data: bytes) -> Self:
        fields = wire.parse(data)
        return cls(
            arguments=tuple(item.decode() for item in wire.all_bytes(fields, 1)),
            environment=pairs(fields, 2),
            working_directory=wire.one_text(fields, 6),
            output_paths=tuple(item.decode() for item in wire.all_bytes(fields, 7)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """`Action {1 command_digest, 2 input_root_digest, 6 timeout, 7 do_not_cache, 9 salt, 10 platform}`.

    The digest of its encoding is the key of the action cache. `timeout_seconds` is part of it; 0 means none.
    """

    command_digest: Digest
    input_root_digest: Digest
    timeout_seconds: int = 0
    do_not_cache: bool = False
    salt: bytes = b""
    platform: Platform | None = None

    def encode(self) -> bytes:
        return b"".join(
            [
                digest_field(1, self.command_digest),
                digest_field(2, self.input_root_digest),
                wire.bytes_field(6, wire.integer_field(1, self.timeout_seconds)) if self.timeout_seconds else b"",
                wire.integer_field(7, self.do_not_cache),
                wire.bytes_field(9, self.salt) if self.salt else b"",
                b"" if self.platform is None else wire.bytes_field(10, self.platform.encode()),
            ]
        )

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Raises ValueError also for a timeout with a fraction of a second, which mlcbuild never writes."""
        fields = wire.parse(data)
        timeout = wire.parse(wire.one_bytes(fields, 6) or b"")
        if wire.one_integer(timeout, 2):
            raise ValueError("an Action whose timeout is not in whole seconds")
        platform = wire.one_bytes(fields, 10)
        return cls(
            command_digest=required_digest(fields, 1, "an Action"),
            input_root_digest=required_digest(fields, 2, "an Action"),
            timeout_seconds=wire.one_integer(timeout, 1),
            do_not_cache=wire.one_flag(fields, 7),
            salt=wire.one_bytes(fields, 9) or b"",
            platform=None if platform is None else Platform.decode(platform),
        )
