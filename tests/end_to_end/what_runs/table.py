"""All rows of changes in a workspace without kernels in Triton."""

from __future__ import annotations

from tests.end_to_end.what_runs.nothing import NOTHING
from tests.end_to_end.what_runs.program_rows import OF_PROGRAMS
from tests.end_to_end.what_runs.rows import Row
from tests.end_to_end.what_runs.workspace_rows import OF_WORKSPACES

TABLE: tuple[Row, ...] = (*NOTHING, *OF_WORKSPACES, *OF_PROGRAMS)
