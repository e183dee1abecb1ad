"""Objects of an S3 store, through boto3 against a server on the loopback interface."""

from __future__ import annotations

import hashlib
import random
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mlcbuild.errors import FetchError, LocalEnvironmentError
from mlcbuild.execution.fetch import s3
from mlcbuild.execution.fetch.observe import observe

if TYPE_CHECKING:
    from tests.execution.fetch.conftest import Site

BODY = random.Random(2).randbytes(700_000)
PIN = hashlib.sha256(BODY).hexdigest()


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": "/nonexistent",
        "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("AWS_CA_BUNDLE", raising=False)


@pytest.fixture
def bucket(site: Site) -> Site:
    pytest.importorskip("boto3")
    site.pages["/bucket/models/w.gguf"] = BODY
    return site


def test_an_object_is_fetched_from_the_endpoint_in_the_hints(bucket: Site, tmp_path: Path) -> None:
    hints = {"url": "s3://bucket/models/w.gguf", "endpoint_url": bucket.url}
    s3.run(file=tmp_path / "w", sha256=PIN, name="w", hints=hints)
    assert (tmp_path / "w").read_bytes() == BODY
    assert observe("s3", hints) == PIN


def test_the_endpoint_may_come_from_the_environment(
    bucket: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", bucket.url)
    s3.run(file=tmp_path / "w", sha256=PIN, name="w", hints={"url": "s3://bucket/models/w.gguf"})
    assert (tmp_path / "w").read_bytes() == BODY


def test_a_body_that_breaks_off_is_resumed(bucket: Site, tmp_path: Path) -> None:
    bucket.cuts = [300_000]
    hints = {"url": "s3://bucket/models/w.gguf", "endpoint_url": bucket.url}
    s3.run(file=tmp_path / "w", sha256=PIN, name="w", hints=hints)
    assert (tmp_path / "w").read_bytes() == BODY
    assert bucket.requests[1][1]["if-match"] == '"v1"'


def test_a_missing_object_is_told_with_advice(bucket: Site, tmp_path: Path) -> None:
    with pytest.raises(FetchError, match="s3://bucket/none") as raised:
        s3.run(file=tmp_path / "w", sha256=PIN, name="w", hints={"url": "s3://bucket/none", "endpoint_url": bucket.url})
    assert "check bucket and key" in str(raised.value)


@pytest.mark.parametrize("url", ["s3://bucket", "s3://bucket/", "https://bucket/key", "bucket/key"])
def test_an_address_must_name_bucket_and_key(url: str, tmp_path: Path) -> None:
    with pytest.raises(FetchError, match="not of the form"):
        s3.run(file=tmp_path / "w", sha256=PIN, name="w", hints={"url": url})


def test_without_boto3_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(LocalEnvironmentError, match="boto3") as raised:
        s3.run(file=tmp_path / "w", sha256=PIN, name="w", hints={"url": "s3://bucket/key"})
    assert "mlcbuild[s3]" in str(raised.value)
