"""The repository that is built in, `@platforms//`: the common platforms of each kind."""

from __future__ import annotations

import json
from collections.abc import Mapping

from mlcbuild.rules.backend import backends

PLATFORMS = "platforms"


def repositories() -> Mapping[str, str]:
    """The text of the one `BUILD.toml` of each repository, by name. Raises ValueError where two kinds have platforms of
    one name."""
    tables: dict[str, str] = {}
    for kind, backend in backends().items():
        for name, attributes in backend.platforms.items():
            if name in tables:
                raise ValueError(f"two backends have a common platform {name!r}: give one another name")
            values = {"name": name, "kind": kind, **attributes}
            # A JSON string or list of strings is one in TOML as well.
            lines = [f"{key} = {json.dumps(value)}" for key, value in values.items()]
            tables[name] = "\n".join(["[[platform]]", *lines, ""])
    return {PLATFORMS: "\n".join(tables.values())}
