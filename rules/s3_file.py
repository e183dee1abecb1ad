"""`s3_file`: an object of an S3 bucket."""

from __future__ import annotations

from mlcbuild.engine.action import JsonValue
from mlcbuild.rules.fetched import FILE_NAME, SHA256, fetch
from mlcbuild.rules.rule import Providers, Rule, RuleContext
from mlcbuild.workspace.schema import Attribute, AttributeKind, RuleSchema


def implement(context: RuleContext) -> Providers:
    url = context.target.string("url")
    bucket, _, key = url.removeprefix("s3://").partition("/")
    if not url.startswith("s3://") or not bucket or not key:
        raise context.error(f'"{url}" is no S3 address', attribute="url", advice=("write s3://bucket/key",))
    hints: dict[str, JsonValue] = {"url": url}
    if endpoint := context.target.optional_string("endpoint_url"):
        hints["endpoint_url"] = endpoint
    return fetch(context, "s3", hints, default_name=key.rpartition("/")[2])


S3_FILE = Rule(
    schema=RuleSchema(
        name="s3_file",
        doc="An object of a bucket, fetched with the credentials of whoever builds (the extra `mlcbuild[s3]`).",
        attributes=(
            Attribute(name="url", kind=AttributeKind.STRING, mandatory=True, doc="s3://bucket/key"),
            Attribute(
                name="endpoint_url",
                kind=AttributeKind.STRING,
                doc="The address of an S3-compatible server. Left out: as the environment says, else AWS.",
            ),
            FILE_NAME,
            SHA256,
        ),
        provides=("files", "fetch"),
    ),
    implementation=implement,
)
