"""The reference of rules says what the rules declare."""

from pathlib import Path

from mlcbuild.rules.documentation import reference
from mlcbuild.rules.registry import load_rules


def test_the_reference_in_docs_is_made_from_the_rules_as_they_are() -> None:
    page = Path(__file__).parents[2] / "docs" / "rules.md"
    rules = load_rules(Path(), ())
    assert page.read_text() == reference(rule.schema for rule in rules.values()), (
        "docs/rules.md is out of date: run `python -m mlcbuild.rules.documentation > docs/rules.md`"
    )
