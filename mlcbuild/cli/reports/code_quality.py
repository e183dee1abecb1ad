"""The Code Quality report of GitLab (`--code-quality FILE`): a JSON array that merge requests show at places of files.

Each item has `description`, `check_name`, `severity`, `fingerprint` and `location: {path, lines: {begin}}`. GitLab
compares the fingerprints of two branches, so they count no line numbers: an error that moved is the same one.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence

from mlcbuild.cli.reports.findings import Finding, FindingKind

_SEVERITIES = {
    FindingKind.ERROR: "blocker",
    FindingKind.FAILED_ACTION: "critical",
    FindingKind.NOT_BUILT: "critical",
    FindingKind.NOT_CACHED: "major",
}
_ELSEWHERE = "BUILD.toml"  # of an error without a place: GitLab drops what has none


def code_quality_document(findings: Sequence[Finding]) -> list[dict[str, object]]:
    """The report as a JSON array; an empty one where nothing was found."""
    seen: Counter[tuple[str, str, str]] = Counter()
    items: list[dict[str, object]] = []
    for finding in findings:
        path = finding.location.path if finding.location else _ELSEWHERE
        what = (finding.kind.value, path, finding.title)
        number = seen[what]
        seen[what] += 1
        items.append(
            {
                "description": f"{finding.title}: {finding.message}" if _adds(finding) else finding.message,
                "check_name": f"mlcbuild-{finding.kind.value}",
                "severity": _SEVERITIES[finding.kind],
                "fingerprint": hashlib.sha256("\0".join((*what, str(number))).encode()).hexdigest(),
                "location": {
                    "path": path,
                    "lines": {"begin": max(finding.location.line, 1) if finding.location else 1},
                },
            }
        )
    return items


def _adds(finding: Finding) -> bool:
    return not finding.message.startswith(finding.title)
