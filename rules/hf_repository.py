"""`hf_repository`: files of a Hugging Face repository at a revision."""

from __future__ import annotations

from mlcbuild.rules.fetched import fetch
from mlcbuild.rules.rule import Providers, Rule, RuleContext
from mlcbuild.workspace.schema import Attribute, AttributeKind, RuleSchema

_REVISION_DIGITS = 40
DEFAULT_BRANCH = "main"


def implement(context: RuleContext) -> Providers:
    target = context.target
    revision = target.optional_string("revision") or ""
    if revision and (len(revision) != _REVISION_DIGITS or not set(revision) <= set("0123456789abcdef")):
        raise context.error(
            f'revision "{revision}" is not a commit',
            attribute="revision",
            advice=(
                "a branch or tag moves; write the 40 hexadecimal digits of the commit, or",
                f'branch = "{revision}" in the place of revision: `mlcbuild fetch --update` finds its commit',
            ),
        )
    if not revision and target.has("sha256"):
        raise context.error("sha256 without a revision", attribute="sha256", advice=("a pin is that of a commit",))
    hints = {
        "repository": target.string("repository"),
        "revision": revision,
        "branch": target.optional_string("branch") or ("" if revision else DEFAULT_BRANCH),
        "files": list(target.strings("files")),
    }
    return fetch(context, "huggingface", hints, default_name="repository", directory=True)


HF_REPOSITORY = Rule(
    schema=RuleSchema(
        name="hf_repository",
        doc="A directory of files from a Hugging Face repository. HF_ENDPOINT and HF_TOKEN are honoured.",
        attributes=(
            Attribute(name="repository", kind=AttributeKind.STRING, mandatory=True, doc="owner/name, as on the hub."),
            Attribute(
                name="revision",
                kind=AttributeKind.STRING,
                doc="A commit, 40 digits. `mlcbuild fetch --update` writes it where it is left out.",
            ),
            Attribute(
                name="branch",
                kind=AttributeKind.STRING,
                nonempty=True,
                doc="The branch or tag whose commit `mlcbuild fetch --update` writes as the revision, each time. Left "
                "out: that of main, if there is no revision.",
            ),
            Attribute(
                name="files",
                kind=AttributeKind.STRING_LIST,
                mandatory=True,
                nonempty=True,
                doc="The paths of the files wanted.",
            ),
            Attribute(
                name="sha256",
                kind=AttributeKind.STRING,
                doc="The SHA-256 over the sorted list of the files' own digests and paths, as `mlcbuild fetch "
                "--update` writes it.",
            ),
        ),
        provides=("files", "fetch"),
    ),
    implementation=implement,
)
