"""docs/doctor.md: its commands, and the one that tries a bucket on a real server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.documentation.following import follow
from tests.remote.seaweed import ACCESS_KEY, SECRET_KEY, Seaweed

PROJECT = Path(__file__).parents[2]
BUCKET = "builds"  # as the page has it


@pytest.fixture
def server(seaweed: Seaweed) -> Iterator[Seaweed]:
    client = seaweed.client()
    client.create_bucket(Bucket=BUCKET)
    yield seaweed
    for found in client.list_objects_v2(Bucket=BUCKET).get("Contents", ()):
        client.delete_object(Bucket=BUCKET, Key=found["Key"])
    client.delete_bucket(Bucket=BUCKET)


@pytest.mark.slow
def test_the_page_of_the_doctor_works_as_it_stands(
    server: Seaweed, tmp_path: Path, warm_workers: Mapping[str, str]
) -> None:
    follow(
        PROJECT / "docs/doctor.md",
        tmp_path,
        variables={
            **warm_workers,
            "MLCBUILD_REMOTE_ENDPOINT": server.endpoint,
            "MLCBUILD_REMOTE_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        },
    )
