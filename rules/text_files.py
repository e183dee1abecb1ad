"""Texts that targets name: checked while the workspace is analysed, where they lie in it."""

from __future__ import annotations

from mlcbuild.engine.action import SourceArtifact
from mlcbuild.rules.rule import RuleContext


def check_text(context: RuleContext, artifact: SourceArtifact, *, attribute: str, purpose: str) -> None:
    """Report at once what a run would tell after much work: a text that is not UTF-8, or empty. `purpose` is what takes
    a text, for the message."""
    try:
        content = context.read(artifact, attribute=attribute).decode()
    except UnicodeDecodeError as error:
        context.report(f"{artifact.path} is not UTF-8 text: byte {error.start}", attribute=attribute)
        return
    if not content.strip():
        context.report(f"{artifact.path} is empty: {purpose} takes a text", attribute=attribute)
