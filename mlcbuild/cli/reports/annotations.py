"""Annotations of GitHub Actions (`--annotations github`): lines that its runner shows at places of files.

A line is a workflow command, `::error file=F,line=L,col=C,title=T::MESSAGE`. The runner reads standard error as it
does standard output. It shows at most ten errors of a step, so the tenth line counts those that would follow it. In a
message `%`, CR and LF are written as `%25`, `%0D` and `%0A`; in a property `:` and `,` also, as `%3A` and `%2C`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mlcbuild.cli.output import text
from mlcbuild.cli.reports.findings import Finding

MOST_OF_A_STEP = 10


def on_github(environment: Mapping[str, str]) -> bool:
    """Whether this is a job of GitHub Actions."""
    return environment.get("GITHUB_ACTIONS") == "true"


def github_lines(findings: Sequence[Finding]) -> list[str]:
    """A line for each finding, at most ten."""
    if len(findings) <= MOST_OF_A_STEP:
        return [_line(finding) for finding in findings]
    shown = findings[: MOST_OF_A_STEP - 1]
    rest = findings[len(shown) :]
    titles = "\n".join(finding.title for finding in rest[:MOST_OF_A_STEP])
    head = text.plural(len(rest), "more error")
    return [
        *(_line(finding) for finding in shown),
        f"::error title={_property(head)}::{_data(titles)}",
    ]


def _line(finding: Finding) -> str:
    properties = {"title": finding.title}
    if place := finding.location:
        properties = {
            "file": place.path,
            **({"line": str(place.line)} if place.line else {}),
            **({"col": str(place.column)} if place.line and place.column else {}),
            **properties,
        }
    listed = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
    return f"::error {listed}::{_data(finding.message)}"


def _data(value: str) -> str:
    return value.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(value: str) -> str:
    return _data(value).replace(":", "%3A").replace(",", "%2C")
