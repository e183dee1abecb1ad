"""A workspace that is a checkout of mlcbuild: what of the changes of mlcbuild itself the comparison can follow.

The code of stages is read and not run, so that of the revision is read there. All else runs as it is now: how targets
become actions at the revision is not known once that code has changed.
"""

from __future__ import annotations

import sys
from pathlib import Path, PurePath

import mlcbuild
from mlcbuild.cli.affected.revision import Revision
from mlcbuild.engine.normal_form import read_module
from mlcbuild.regular_files import read_regular

_FOLDERS = ("mlcbuild/", "rules/", "cache/")
# They print and ask, and make no actions.
_WITHOUT_EFFECT = ("mlcbuild/cli/", "mlcbuild/doctor/", "mlcbuild/query/")
_WITH_EFFECT = ("mlcbuild/cli/settings/", "mlcbuild/cli/workspace/")


class OwnCode:
    """The code of mlcbuild, in a workspace that is a checkout of it, at a revision and as it runs now."""

    def __init__(self, root: Path, revision: Revision) -> None:
        is_checkout = Path(mlcbuild.__file__).parent.resolve() == (root / "mlcbuild").resolve()
        self._roots = (root, revision.root)
        self._changed = [path for path in sorted(revision.changed) if is_checkout and path.startswith(_FOLDERS)]
        self.former = revision.root if self._changed else None  # None where it is the code that runs

    def analysis_changed(self) -> str:
        """A changed file that may change how targets become actions, or how a survey finds them; "" if there is none.

        To be called after an analysis: that has imported whatever takes part in one.
        """
        for path in self._changed:
            if path.startswith(_WITHOUT_EFFECT) and not path.startswith(_WITH_EFFECT):
                continue
            is_code = path.endswith(".py")
            if not is_code or (_module(path) in sys.modules and means_something_else(path, *self._roots)):
                return path
        return ""


def means_something_else(path: str, *roots: Path) -> bool:
    """Whether a Python module differs in more than comments, docstrings and format, or cannot be read."""
    try:
        sources = [read_regular(root / path) for root in roots]
        forms = {read_module(source, name="module", is_package=False).digest for source in sources}
    except (OSError, SyntaxError, ValueError):
        return True
    return len(forms) > 1


def _module(path: str) -> str:
    """The name of a module by its path: the folders `rules` and `cache` are packages of mlcbuild."""
    parts = PurePath(path).with_suffix("").parts
    named = parts if parts[0] == "mlcbuild" else ("mlcbuild", *parts)
    return ".".join(named[:-1] if named[-1] == "__init__" else named)
