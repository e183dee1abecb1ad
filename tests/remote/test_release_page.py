"""The release manager's journey, docs/releases.md: built by one machine, released by another, verified by a third."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.compiler.tiny_models import checkpoint, write_gguf
from tests.documentation.following import follow
from tests.remote.seaweed import ACCESS_KEY, SECRET_KEY, Seaweed

PROJECT = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_page_of_releases_works_as_it_stands(
    seaweed: Seaweed, tmp_path: Path, warm_workers: Mapping[str, str]
) -> None:
    (tmp_path / "workspace").mkdir()
    write_gguf(tmp_path / "workspace/tiny.gguf", checkpoint())
    follow(
        PROJECT / "docs/releases.md",
        tmp_path,
        variables={
            **warm_workers,
            "MLCBUILD_REMOTE": f"s3://{seaweed.bucket}/{uuid.uuid4().hex}",
            "MLCBUILD_REMOTE_ROLE": "read-write",
            "MLCBUILD_REMOTE_ENDPOINT": seaweed.endpoint,
            "MLCBUILD_REMOTE_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        },
    )
