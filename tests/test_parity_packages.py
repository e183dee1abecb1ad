"""What tests compare with may be missing on a developer's machine, and not in CI."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.parity_packages import parity_package


def test_without_a_package_tests_are_skipped_and_fail_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match=r"no_such_package.*locks/parity\.txt"):
        parity_package("no_such_package")
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match=r"no_such_package.*locks/parity\.txt"):
        parity_package("no_such_package")


def test_a_package_that_is_there_is_the_module() -> None:
    assert parity_package("pytest") is pytest


def test_ci_says_that_it_is_ci() -> None:
    script = (Path(__file__).parents[1] / ".ci/run").read_text()
    assert script.index("export CI=true") < script.index('eval "$(command_line 2)"')
