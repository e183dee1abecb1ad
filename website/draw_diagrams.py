"""Draw the diagrams of the pages as SVG: `python -m website.draw_diagrams MERMAID.js`, with Chromium.

GitHub draws the blocks marked `mermaid` itself. The site shows drawings instead, because it must need no network and
Mermaid is three megabytes of JavaScript: `npm pack mermaid` has it as `dist/mermaid.min.js`. A drawing is named by the
digest of its source, and those that no page needs are removed.
"""

from __future__ import annotations

import hashlib
import html
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PROJECT = Path(__file__).parents[1]
DRAWINGS = Path(__file__).parent / "theme/assets/diagrams"
_BLOCK = re.compile(r"^```mermaid\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_CONFIGURATION = {"startOnLoad": False, "theme": "neutral", "fontFamily": "sans-serif", "htmlLabels": False}
_PAGE = """\
<!doctype html><meta charset="utf-8"><body><script src="{script}"></script><script>
mermaid.initialize({configuration});
mermaid.render("drawing", {source}).then(
  ({{svg}}) => {{ document.body.innerHTML = svg; document.title = "drawn" }},
  error => {{ document.body.textContent = error }})
</script>
"""


def drawing_of(source: str) -> Path:
    """Where the drawing of a block is, whether or not it is there."""
    return DRAWINGS / f"{hashlib.sha256(source.encode()).hexdigest()[:16]}.svg"


def diagrams(text: str) -> list[str]:
    """The sources of the diagrams of a page."""
    return _BLOCK.findall(text)


def with_drawings(text: str) -> str:
    """The page with drawings in place of its diagrams. Raises FileNotFoundError for one that is not drawn yet."""

    def image(block: re.Match[str]) -> str:
        path = drawing_of(block[1])
        if not path.is_file():
            raise FileNotFoundError(f"{path.name} is not drawn: python -m website.draw_diagrams MERMAID.js")
        address = path.relative_to(DRAWINGS.parents[1]).as_posix()
        return f'<img class="diagram" src="{address}" alt="A diagram; the text says the same.">'

    return _BLOCK.sub(image, text)


def draw(source: str, *, mermaid: Path, chromium: str) -> str:
    """The diagram as SVG. Raises RuntimeError with Mermaid's own words."""
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder, "page.html")
        page.write_text(
            _PAGE.format(
                script=mermaid.resolve().as_uri(), configuration=json.dumps(_CONFIGURATION), source=json.dumps(source)
            ),
            encoding="utf-8",
        )
        options = ("--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}/profile")
        command = [chromium, *options, "--virtual-time-budget=20000", "--dump-dom", page.as_uri()]
        shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    drawn = re.search(r"<svg.*</svg>", shown, re.DOTALL)
    if drawn is None:
        raise RuntimeError(html.unescape(shown))
    # HTML closes no elements without content; SVG does.
    return re.sub(r"<br ?>", "<br/>", drawn[0]) + "\n"


def main() -> None:
    mermaid, chromium = Path(sys.argv[1]), shutil.which("chromium") or "chromium"
    DRAWINGS.mkdir(exist_ok=True)
    wanted = set()
    for path in sorted((PROJECT / "docs").glob("*.md")):
        for source in diagrams(path.read_text(encoding="utf-8")):
            drawing = drawing_of(source)
            wanted.add(drawing)
            if not drawing.exists():
                drawing.write_text(draw(source, mermaid=mermaid, chromium=chromium), encoding="utf-8")
                print(f"{path.name}: {drawing.relative_to(PROJECT)}")
    for path in set(DRAWINGS.glob("*.svg")) - wanted:
        path.unlink()


if __name__ == "__main__":
    main()
