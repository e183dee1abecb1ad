"""The doctor's check of the sandbox tries the real one, also where parts of it are missing."""

from __future__ import annotations

import pytest

from mlcbuild.doctor import sandbox as check
from mlcbuild.doctor.finding import Verdict
from mlcbuild.execution.sandbox import cuts_network, landlock_version

pytestmark = pytest.mark.skipif(landlock_version() < 6 or not cuts_network(), reason="this kernel lacks a part")


def test_a_whole_sandbox_is_ok() -> None:
    finding = check.sandbox()
    assert (finding.verdict, finding.measured) == (
        Verdict.OK,
        "actions reach their inputs and the system alone, and share nothing",
    )


@pytest.mark.parametrize(
    ("without", "possible"),
    [
        (
            "sandbox._VERSION = 0",
            ["read files that are no inputs", "leave shared memory", "abstract sockets"],
        ),
        ("sandbox._SECCOMP = 0", ["use System V shared memory", "use the network"]),
        ("sandbox._VERSION = 5", ["connect to abstract sockets"]),
    ],
)
def test_what_is_possible_without_a_part_is_named(
    without: str, possible: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    prelude = f"import mlcbuild.execution.sandbox as sandbox\n{without}\n"
    monkeypatch.setattr(check, "_TRIAL", prelude + check._TRIAL)
    finding = check.sandbox()
    assert finding.verdict is Verdict.WARNING
    for what in possible:
        assert what in finding.measured
