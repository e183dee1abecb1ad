"""The probe of a bucket: its credentials, the server's clock, and which features of S3 the server has.

Some S3-compatible servers accept `If-None-Match` and replace the object all the same (s3rver), or answer 501 (Swift).
Some accept any checksum.
"""

from __future__ import annotations

import contextlib
import dataclasses
import email.utils
from pathlib import Path
from typing import Any

from mlcbuild.cache.digest import Digest, DigestFunction
from mlcbuild.cache.remote.probing import PARTED_BYTES, Support
from mlcbuild.cache.remote.s3.client import S3Client, blob_name, made_session
from mlcbuild.cache.remote.s3.errors import S3Error, as_s3_error
from mlcbuild.cache.remote.s3.layout import ObjectKeys
from mlcbuild.cache.remote.s3.section import crc32
from mlcbuild.cache.remote.s3.settings import S3Settings
from mlcbuild.cache.remote.s3.transport import S3Transport
from mlcbuild.cache.remote.transport import Transport

# Descriptions of botocore's names for sources of credentials.
_METHODS = {
    "env": "environment variables",
    "shared-credentials-file": "the credentials file of the AWS tools",
    "config-file": "the configuration file of the AWS tools",
    "sso": "an SSO login",
    "login": "a login",
    "assume-role": "an assumed role",
    "assume-role-with-web-identity": "a role, by a workload's token",
    "custom-process": "a program in the AWS configuration",
    "container-role": "the container's role",
    "iam-role": "the machine's role",
}


class S3Probe:
    """See `mlcbuild.cache.remote.probing.Probe`."""

    removes = True

    def __init__(self, settings: S3Settings, function: DigestFunction) -> None:
        self._settings = settings
        self._keys = ObjectKeys(prefix=settings.prefix, function=function, layout=settings.layout)
        self._client = S3Client(settings)
        self._whole = S3Transport(settings, function)
        small = dataclasses.replace(settings, multipart_bytes=PARTED_BYTES, part_bytes=PARTED_BYTES)
        self._in_parts = S3Transport(small, function)
        self.naming = f"{function.value}, which is part of every key"

    @property
    def transport(self) -> Transport:
        return self._whole

    def credentials(self) -> str:
        doing = f"looking for the credentials of {self._settings.address}"
        session = made_session(self._settings)
        from botocore.exceptions import NoCredentialsError

        try:
            found = session.get_credentials()
            if found is None:
                raise NoCredentialsError
            method, profile = found.method, session.profile_name
        except Exception as error:
            raise as_s3_error(error, doing) from error
        told = _METHODS.get(method, "another source of boto")
        if method == "env":
            return f"{told} (AWS_ACCESS_KEY_ID{', with a session token' if found.token else ''})"
        return f"{told}, profile {profile}"

    def server_time(self) -> float | None:
        """Every answer has a date (RFC 9110, 6.6.1), also one that denies access."""
        nothing = Digest("0" * 64, 0)
        parameters = {"Key": self._keys.blob(nothing)}
        with self._client.operation() as operation, contextlib.suppress(S3Error):
            try:
                answer = self._client.send(operation, "head_object", blob_name(nothing), parameters)
            except S3Error as error:
                return _seconds(error.date)
            return _seconds(answer.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date", ""))
        return None

    def condition(self, digest: Digest, data: bytes, /) -> Support:
        parameters = {"IfNoneMatch": "*"}
        try:
            self._put(digest, data, parameters)
        except S3Error as error:
            if error.status == 412:
                return Support.SUPPORTED
            if _is_rejection(error):
                return Support.REJECTED
            raise
        try:
            self._put(digest, data, parameters)
        except S3Error as error:
            if error.status == 412:
                return Support.SUPPORTED
            raise
        return Support.IGNORED

    def checksum(self, digest: Digest, data: bytes, /) -> Support:
        try:
            self._put(digest, data, {"ChecksumCRC32": crc32(data)})
        except S3Error as error:
            if _is_rejection(error):
                return Support.REJECTED
            raise
        try:
            self._put(digest, data, {"ChecksumCRC32": crc32(data + b"x")})
        except S3Error as error:
            if error.status == 400:
                return Support.SUPPORTED
            raise
        return Support.IGNORED

    def upload_in_parts(self, digest: Digest, path: Path, /) -> bool:
        self._in_parts.upload(digest, path, replace=True)
        return True

    def remove(self, digest: Digest, /) -> None:
        self._delete(self._keys.blob(digest), blob_name(digest))

    def remove_result(self, key: Digest, /) -> None:
        self._delete(self._keys.result(key), "a result")

    def close(self) -> None:
        self._whole.close()
        self._in_parts.close()
        self._client.close()

    def _put(self, digest: Digest, data: bytes, parameters: dict[str, Any]) -> None:
        asked = {"Key": self._keys.blob(digest), "Body": data, **parameters}
        with self._client.operation(len(data)) as operation:
            self._client.send(operation, "put_object", blob_name(digest), asked)

    def _delete(self, key: str, what: str) -> None:
        with self._client.operation() as operation:
            self._client.send(operation, "delete_object", what, {"Key": key})


def _is_rejection(error: S3Error) -> bool:
    return error.status in (400, 501)


def _seconds(date: str) -> float | None:
    try:
        return email.utils.parsedate_to_datetime(date).timestamp()
    except (ValueError, TypeError, OverflowError):
        return None
