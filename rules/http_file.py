"""`http_file`: a file at one or more http or https addresses."""

from __future__ import annotations

from mlcbuild.rules.fetched import FILE_NAME, SHA256, fetch
from mlcbuild.rules.rule import Providers, Rule, RuleContext
from mlcbuild.workspace.schema import Attribute, AttributeKind, RuleSchema


def implement(context: RuleContext) -> Providers:
    urls = context.target.strings("urls")
    for url in urls:
        if not url.startswith(("http://", "https://")):
            raise context.error(f'"{url}" is no http or https address', attribute="urls")
    name = urls[0].partition("?")[0].partition("#")[0].rstrip("/").rpartition("/")[2]
    return fetch(context, "http", {"urls": list(urls)}, default_name=name)


HTTP_FILE = Rule(
    schema=RuleSchema(
        name="http_file",
        doc="A file fetched over http or https.",
        attributes=(
            Attribute(
                name="urls",
                kind=AttributeKind.STRING_LIST,
                mandatory=True,
                nonempty=True,
                doc="Addresses of the same file, tried in order.",
            ),
            FILE_NAME,
            SHA256,
        ),
        provides=("files", "fetch"),
    ),
    implementation=implement,
)
