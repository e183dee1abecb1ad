"""What ImportConfig makes of a source."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from mlcbuild.compiler.stages import import_config
from mlcbuild.rules.families import families
from tests.compiler.resolving import readers


def imported(source: Path, directory: Path) -> tuple[dict[str, Any], Path]:
    import_config.run(
        readers=readers(),
        source=source,
        config=directory / "config.json",
        tokenizer=directory / "tokenizer",
        vocabulary=directory / "vocabulary.json",
        licenses=directory / "licenses",
        families=families(),
    )
    document: dict[str, Any] = json.loads((directory / "config.json").read_text())
    return document, directory / "tokenizer"
