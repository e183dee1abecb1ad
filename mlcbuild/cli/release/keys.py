"""The keys of releases: files, or for the signing key a variable, as CI systems keep secrets."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from mlcbuild.errors import UsageError
from mlcbuild.release.signing import MAKE_A_KEY, MAKE_ITS_PUBLIC_KEY, PrivateKey, PublicKey

KEY_VARIABLE = "MLCBUILD_RELEASE_KEY"
_LARGEST = 1 << 16


def signing_key(path: Path | None, environment: Mapping[str, str]) -> PrivateKey | None:
    """The key of --key, or that of the variable, which has a path or the key itself. None if neither is given.

    Raises UsageError, which never quotes what may be a key.
    """
    source, text = "--key", ""
    if path is None:
        source, text = KEY_VARIABLE, environment.get(KEY_VARIABLE, "")
        if not text:
            return None
        if "-----BEGIN" not in text:
            path, text = Path(text), ""
    pem = text.encode() if path is None else _content(path, source)
    named = KEY_VARIABLE if path is None else f"{source}: {path}"
    try:
        return PrivateKey(pem)
    except ValueError as error:
        raise UsageError(f"{named} {error}", advice=(f"make a key: {MAKE_A_KEY}",)) from None


def public_key(path: Path) -> PublicKey:
    """Raises UsageError."""
    try:
        return PublicKey.parse(_content(path, "--key"))
    except ValueError as error:
        raise UsageError(
            f"--key: {path} {error}", advice=(f"the public key of a private one: `{MAKE_ITS_PUBLIC_KEY}`",)
        ) from None


def _content(path: Path, source: str) -> bytes:
    try:
        with path.open("rb") as stream:
            return stream.read(_LARGEST)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no path"
        shown = f"{path} cannot be read" if source == "--key" else "its file cannot be read"
        raise UsageError(f"{source}: {shown}: {reason}") from None
