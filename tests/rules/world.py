"""Small workspaces for tests of rules: files written from text, loaded and analysed as the command line does."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from mlcbuild.engine.action import Action
from mlcbuild.rules.analysis import Analysis, analyse
from mlcbuild.rules.registry import load_rules
from mlcbuild.rules.repositories import repositories
from mlcbuild.workspace.loader import load, load_settings


def write(root: Path, files: Mapping[str, str]) -> Path:
    """Write files; a root BUILD.toml with `[workspace]` is made where none is given. Answers the root."""
    for path, text in {"BUILD.toml": '[workspace]\nname = "test"\n', **files}.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return root


def analysed(root: Path, *patterns: str, configuration: str = "default") -> Analysis:
    """Load and analyse what the patterns name."""
    rules = load_rules(root, load_settings(root).rules)
    schemas = {name: rule.schema for name, rule in rules.items()}
    loaded = load(root, schemas, patterns, configuration=configuration, repositories=repositories())
    return analyse(loaded, rules)


def action(analysis: Analysis, mnemonic: str) -> Action:
    """The only action of that mnemonic."""
    (found,) = (each for each in analysis.actions if each.mnemonic == mnemonic)
    return found
