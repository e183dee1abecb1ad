"""The CI owner's journey, docs/ci.md: shards, a pull request and a release, with roles that a server enforces."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.documentation.following import follow
from tests.remote.seaweed import User, running

PROJECT = Path(__file__).parents[2]
POLICIES = PROJECT / "examples/ci/aws"
BUCKET = "of-the-tests"
ROLES = ("reader", "writer")


def user(role: str) -> User:
    policy = (POLICIES / f"{role}-policy.json").read_text().replace("BUCKET", BUCKET)
    return User(
        name=role, access_key=f"AKIA{role.upper()}00000000", secret_key=f"the-secret-of-a-{role}", policy=policy
    )


@pytest.mark.slow
def test_the_page_of_ci_works_as_it_stands(tmp_path: Path, warm_workers: Mapping[str, str]) -> None:
    users = [user(role) for role in ROLES]
    (tmp_path / "seaweed").mkdir()
    with running(tmp_path / "seaweed", users=users) as server:
        credentials, config = tmp_path / "credentials", tmp_path / "config"
        credentials.write_text(
            "".join(
                f"[{each.name}]\naws_access_key_id = {each.access_key}\naws_secret_access_key = {each.secret_key}\n"
                for each in users
            )
        )
        config.write_text(
            "".join(f"[profile {each.name}]\nregion = us-east-1\nendpoint_url = {server.endpoint}\n" for each in users)
        )
        follow(
            PROJECT / "docs/ci.md",
            tmp_path,
            variables={
                **warm_workers,
                "MLCBUILD_REMOTE": f"s3://{BUCKET}/mlcbuild",
                "AWS_SHARED_CREDENTIALS_FILE": str(credentials),
                "AWS_CONFIG_FILE": str(config),
                "AWS_EC2_METADATA_DISABLED": "true",
            },
        )
        objects = server.client().get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix="mlcbuild/")
        assert sum(page["KeyCount"] for page in objects) > 100
