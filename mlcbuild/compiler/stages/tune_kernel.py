"""TuneKernel: how long a kernel takes with a shape, beside the time with its default shape.

Reads `candidate` and `untuned` (libraries of LinkKernel) and `candidates` (of ListCandidates, for the arguments);
writes `measured` (`runtime.measuring.measurement`). A candidate that crashes, hangs or computes something else is a
measurement too. The result is true of the machine that it was measured on, and no key counts that: nothing keeps it
but the records that `mlcbuild tune` makes of it.
"""

from __future__ import annotations

import json
from pathlib import Path

from mlcbuild.errors import LocalEnvironmentError, StageError
from mlcbuild.runtime.measuring.candidate_list import CandidateList
from mlcbuild.runtime.measuring.child import measure
from mlcbuild.runtime.measuring.measurement import to_json


def run(
    *, candidate: Path, untuned: Path, candidates: Path, measured: Path, sizes: list[dict[str, int]], seconds: float
) -> None:
    """`sizes` are the sizes to measure at, of those that are known only at run time, and `seconds` the longest that
    each measurement may take. Raises StageError for a file that lists no candidates; that and LocalEnvironmentError as
    `measure` does."""
    try:
        listed = CandidateList.read(json.loads(candidates.read_text(encoding="utf-8")))
    except ValueError as error:
        raise StageError(f"{candidates.name}: {error}") from error
    (found,) = measure(
        [candidate], untuned, kernel=listed.kernel, arguments=listed.arguments, sizes=sizes, seconds=seconds
    )
    if isinstance(found, LocalEnvironmentError):
        raise found
    measured.write_text(to_json(found), encoding="utf-8")
