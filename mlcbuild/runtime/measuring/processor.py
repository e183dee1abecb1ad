"""What this machine calls its processor."""

from __future__ import annotations

import platform
import re
from pathlib import Path

_CPU_INFO = Path("/proc/cpuinfo")


def processor_name() -> str:
    """What Linux calls it; the kind of machine where it does not say."""
    try:
        told = _CPU_INFO.read_text(encoding="utf-8", errors="replace")
    except OSError:
        told = ""
    found = re.search(r"^model name\s*:\s*(.+)$", told, re.MULTILINE)
    return found[1].strip() if found else platform.machine()
