"""Passes beside the entries of a phase, a backend's and a workspace's: where each runs, and what errors in them say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import tvm
from tvm import relax

from mlcbuild.errors import MlcbuildError, StageError

if TYPE_CHECKING:
    from mlcbuild.compiler.phases.pipeline import PhaseContext, Run

_SIGNATURE = "a pass is a function (module, context) that returns a module, the same one or another"


@dataclass(frozen=True, kw_only=True)
class PlacedPass:
    """A pass that no entry names: it runs right `before` or right `after` an entry.

    A workspace's has the `name` of its function, `package.module:name`; a backend's that under which `Passes` has it.
    """

    run: Run
    after: str = ""
    before: str = ""
    name: str = ""

    def __call__(self, module: tvm.IRModule, context: PhaseContext) -> tvm.IRModule:
        """The module that the pass makes of `module`.

        Raises StageError where it makes none, or one that is not well-formed. What the pass itself raises comes
        through, with a note that names it.
        """
        was_well_formed = not _problem(module)
        try:
            made = self.run(module, context)
        except MlcbuildError:
            raise
        except Exception as error:
            error.add_note(f"raised by {self}")
            if isinstance(error, TypeError) and ":" in self.name:
                error.add_note(_SIGNATURE)
            raise
        if not isinstance(made, tvm.IRModule):
            raise StageError(f"{self} returned {type(made).__name__}, not a module", advice=(_SIGNATURE,))
        if was_well_formed and (problem := _problem(made)):
            raise StageError(f"{self} returned a module that is not well-formed: {problem}")
        return made

    def __str__(self) -> str:
        return f"the pass {self.name}, {f'before {self.before}' if self.before else f'after {self.after}'}"


def added_passes(functions: Sequence[Run], places: Sequence[Mapping[str, str]]) -> tuple[PlacedPass, ...]:
    """A workspace's passes in the order in which a library names them.

    Each of `places` has `function`, a name, and `before` or `after`, an entry. `functions` are those of these names,
    each once and sorted by name.
    """
    named = dict(zip(sorted({place["function"] for place in places}), functions, strict=True))
    return tuple(
        PlacedPass(
            run=named[place["function"]],
            after=place.get("after", ""),
            before=place.get("before", ""),
            name=place["function"],
        )
        for place in places
    )


def _problem(module: tvm.IRModule) -> str:
    """Why a module is not well-formed; "" where it is."""
    try:
        relax.analysis.well_formed(module)
    except Exception as error:
        return str(error).strip().splitlines()[0]
    return ""
