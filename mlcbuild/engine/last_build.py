"""What a workspace remembers of its last build: the key, the result and the seconds of each action.

It lies in `.mlcbuild/`. With it a build does not compute keys and read results again that have not changed, knows what
is up to date, and which action to run first. Nothing else is lost with the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from mlcbuild.cache.digest import Digest
from mlcbuild.engine.executor import FileEntry
from mlcbuild.engine.json_cache import JsonCache

STATE_FILE = "last-build.json"
_KIND = "last build 1"
_MOST_ACTIONS = 100_000
_MOST_OUTPUTS = 64  # of one action; a result with more is read from the action cache
_SMALLER_PEAKS = 20  # after so many, most of a remembered larger peak is forgotten
_SECONDS = 4  # their index in a record


class LastBuild:
    """Keys, results and seconds by action identifier, and seconds by mnemonic.

    With `path = None` they live as long as the object.

    A record is a JSON list: signature, the key's hash and size, the outputs as a flat list of path, hash, size and
    executable bit (null where there are too many), and the seconds of an action that has run here.
    """

    def __init__(self, path: Path | None) -> None:
        self._cache = JsonCache(path, kind=_KIND)
        records = self._cache.get("actions")
        self._records: dict[str, list[object]] = records if isinstance(records, dict) else {}
        self._seconds = _numbers(self._cache.get("seconds"))
        self._measured: dict[str, float] = {}  # by identifier, since the file was read
        self._peaks = {name: int(size) for name, size in _numbers(self._cache.get("peak bytes")).items()}
        self._changed = False

    @property
    def peak_bytes_by_mnemonic(self) -> Mapping[str, int]:
        """About the most memory that an action of each mnemonic has used."""
        return self._peaks

    @property
    def seconds_by_mnemonic(self) -> Mapping[str, float]:
        return self._seconds

    def seconds_of(self, identifier: str, mnemonic: str) -> float | None:
        """The seconds of an action; of its mnemonic where it has not run here; None where neither is known."""
        own = self._seconds_of(identifier)
        return self._seconds.get(mnemonic) if own is None else own

    def _seconds_of(self, identifier: str) -> float | None:
        if identifier in self._measured:
            return self._measured[identifier]
        record = self._records.get(identifier)
        last = record[_SECONDS] if isinstance(record, list) and len(record) > _SECONDS else None
        return float(last) if isinstance(last, (int, float)) and last >= 0 else None

    def identifiers(self) -> tuple[str, ...]:
        """The actions that are remembered."""
        return tuple(self._records)

    def key_of(self, identifier: str) -> Digest | None:
        """The key that an action had; None where it is not remembered."""
        try:
            _, key_hash, size, *_ = self._records[identifier]
            return Digest(key_hash, size)  # type: ignore[arg-type]  # Digest checks both.
        except (KeyError, TypeError, ValueError):
            return None

    def had_key(self, identifier: str, key: Digest) -> bool:
        """Whether the action had this key in the last build."""
        record = self._records.get(identifier)
        return isinstance(record, list) and record[1:3] == [key.hash, key.size_bytes]

    def key_for(self, identifier: str, signature: str) -> Digest | None:
        """The key that an action had, where its signature was the same; else None."""
        record = self._records.get(identifier)
        known = isinstance(record, list) and record[:1] == [signature]
        return self.key_of(identifier) if known else None

    def outputs_for(self, identifier: str, key: Digest) -> tuple[FileEntry, ...] | None:
        """The outputs that an action had under this key; None where they are not remembered."""
        try:
            _, key_hash, size, flat, *_ = self._records[identifier]
            if flat is None or key_hash != key.hash or size != key.size_bytes:
                return None
            values = iter(flat)  # type: ignore[call-overload]  # TypeError is what a damaged record raises.
            return tuple(
                FileEntry(path=str(path), digest=Digest(blob, length), is_executable=bool(bit))
                for path, blob, length, bit in zip(values, values, values, values, strict=True)
            )
        except (KeyError, TypeError, ValueError):
            return None

    def remember(self, identifier: str, signature: str, key: Digest, outputs: tuple[FileEntry, ...] | None) -> None:
        flat: list[object] | None = None
        if outputs is not None and len(outputs) <= _MOST_OUTPUTS:
            flat = []
            for entry in outputs:
                flat += (entry.path, entry.digest.hash, entry.digest.size_bytes, entry.is_executable)
        record = [signature, key.hash, key.size_bytes, flat]
        known = self._records.get(identifier)
        if not isinstance(known, list) or known[:_SECONDS] != record:
            seconds = self._seconds_of(identifier)
            # New records stand last. So records of targets that are gone are dropped first.
            self._records.pop(identifier, None)
            self._records[identifier] = record if seconds is None else [*record, seconds]
            self._changed = True

    def remember_seconds(self, mnemonic: str, seconds: float, *, identifier: str = "") -> None:
        """Add a measurement: the mean of it and what is remembered. That of an action lives as long as its record."""
        self._seconds[mnemonic] = _mixed(self._seconds.get(mnemonic), seconds)
        if identifier:
            self._measured[identifier] = _mixed(self._seconds_of(identifier), seconds)
        self._changed = True

    def remember_peak(self, mnemonic: str, peak_bytes: int) -> None:
        """Add a measurement. A larger one counts at once, a smaller one slowly. 0 is no measurement."""
        if peak_bytes:
            known = self._peaks.get(mnemonic, peak_bytes)
            self._peaks[mnemonic] = max(peak_bytes, known - (known - peak_bytes) // _SMALLER_PEAKS)
            self._changed = True

    def save(self) -> None:
        """Write the file if something has changed. A disk that cannot take it only makes the next build slower."""
        if not self._changed:
            return
        for identifier, seconds in self._measured.items():
            record = self._records.get(identifier)
            if isinstance(record, list) and len(record) >= _SECONDS:
                record[_SECONDS:] = [round(seconds, 3)]
        for identifier in list(self._records)[: max(0, len(self._records) - _MOST_ACTIONS)]:
            del self._records[identifier]
        self._cache.set("actions", self._records)
        self._cache.set("seconds", self._seconds)
        self._cache.set("peak bytes", self._peaks)
        self._cache.save()
        self._changed = False


def _mixed(known: float | None, seconds: float) -> float:
    return seconds if known is None else (known + seconds) / 2


def _numbers(value: object) -> dict[str, float]:
    if not isinstance(value, dict):
        return {}
    return {name: float(item) for name, item in value.items() if isinstance(item, (int, float)) and item >= 0}
