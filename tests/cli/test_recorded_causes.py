"""Why a recorded action ran: there are words for each cause that the engine knows."""

from __future__ import annotations

from mlcbuild.cli.explain import reasons
from mlcbuild.engine.build_events import Cause


def test_each_cause_is_told_in_a_sentence() -> None:
    told = {cause: reasons._CAUSES.get(cause.value, "") for cause in Cause if cause is not Cause.CHANGED}
    assert all(len(text.split()) > 3 for text in told.values()), told
