"""Fetches an object of an S3 store. Hints: `url` (`s3://bucket/key`), and `endpoint_url` unless the environment has it.

boto3 finds credentials, region and endpoint (`AWS_*` variables, `~/.aws`). boto3 is an extra of mlcbuild (`s3`), and is
imported when something is fetched.
"""

from __future__ import annotations

import contextlib
import time
import urllib.parse
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mlcbuild.errors import FetchError, LocalEnvironmentError
from mlcbuild.execution.fetch import verify
from mlcbuild.execution.fetch.progress import DownloadProgress, note

_CHUNK_BYTES = 1 << 18
_PAUSES_SECONDS = (0.5, 2.0, 5.0)


def run(*, file: Path, sha256: str, name: str, hints: dict[str, Any]) -> None:
    """Download the object to `file` if it has the pinned digest. Raises FetchError, LocalEnvironmentError."""
    verify.check_pin(sha256, name)
    verify.receive(chunks(hints), file=file, sha256=sha256, what=verify.hint(hints, "url"))


def chunks(hints: Mapping[str, Any]) -> Iterator[bytes]:
    """The bytes of the object. Raises FetchError, and LocalEnvironmentError if boto3 is not installed."""
    url = verify.hint(hints, "url")
    bucket, key = _split(url)
    try:
        import boto3
        import botocore.exceptions
    except ModuleNotFoundError:
        raise LocalEnvironmentError(
            f"{url} needs boto3, which is not installed", advice=("install mlcbuild with its extra: `mlcbuild[s3]`",)
        ) from None
    try:
        with contextlib.closing(boto3.client("s3", endpoint_url=hints.get("endpoint_url") or None)) as client:
            yield from _resumed(client, bucket, key, url)
    except botocore.exceptions.ClientError as error:
        raise FetchError(f"{url}: {error}", advice=_advice(error.response)) from error
    except botocore.exceptions.NoCredentialsError as error:
        raise FetchError(f"{url}: {error}", advice=("set AWS_ACCESS_KEY_ID, or AWS_PROFILE",)) from error
    except (botocore.exceptions.BotoCoreError, botocore.exceptions.HTTPClientError, ValueError) as error:
        raise FetchError(f"{url}: {error}", advice=("check AWS_ENDPOINT_URL and the network",)) from error


def _resumed(client: Any, bucket: str, key: str, url: str) -> Iterator[bytes]:
    """The body. If it is interrupted, the rest is requested again: boto3 retries requests, but not bodies."""
    import botocore.exceptions

    broken = (
        botocore.exceptions.ResponseStreamingError,
        botocore.exceptions.ReadTimeoutError,
        botocore.exceptions.IncompleteReadError,
    )
    progress = DownloadProgress(url)
    received = 0
    same: dict[str, str] = {}
    pauses = iter(_PAUSES_SECONDS)
    while True:
        answer = client.get_object(Bucket=bucket, Key=key, **same)
        if progress.total is None:
            progress.total = answer.get("ContentLength")
        try:
            with contextlib.closing(answer["Body"]) as body:
                for chunk in body.iter_chunks(_CHUNK_BYTES):
                    received += len(chunk)
                    pauses = iter(_PAUSES_SECONDS)
                    progress.show(received)
                    yield chunk
            return
        except broken as error:
            pause = next(pauses, None)
            if pause is None:
                raise
            note(f"{url}: {error}; continuing at byte {received} in {pause:g} s")
        time.sleep(pause)
        same = {"Range": f"bytes={received}-"} if received else {}
        if "ETag" in answer:
            same["IfMatch"] = answer["ETag"]


def _split(url: str) -> tuple[str, str]:
    parts = urllib.parse.urlsplit(url)
    key = url.partition("://")[2].partition("/")[2]
    if parts.scheme != "s3" or not parts.netloc or not key:
        raise FetchError(f"{url!r} is not of the form s3://bucket/key")
    return parts.netloc, key


def _advice(response: Mapping[str, Any]) -> tuple[str, ...]:
    code = str(response.get("Error", {}).get("Code", ""))
    if code in ("NoSuchKey", "NoSuchBucket", "404"):
        return ("check bucket and key, and the endpoint (AWS_ENDPOINT_URL)",)
    if code in ("AccessDenied", "403", "InvalidAccessKeyId", "SignatureDoesNotMatch"):
        return ("the credentials that boto3 found do not permit to read it",)
    return ()
