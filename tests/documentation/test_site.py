"""The documentation as a site: built without a warning, complete, and whole without a network."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from tests.documentation.pages import PROJECT, paths
from website.draw_diagrams import diagrams

# What a browser loads by itself, as opposed to links that a reader follows.
_LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}
_CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Resources(HTMLParser):
    """The addresses that a page loads, those that it links, and the anchors that it has."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.linked: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if (attribute := _LOADED.get(tag)) and (address := values.get(attribute)):
            self.loaded.append(address)
        if tag == "a" and (address := values.get("href")):
            self.linked.append(address)
        if identifier := values.get("id"):
            self.anchors.add(identifier)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site. With `strict` in mkdocs.yml, a warning is an error: a link, an anchor, a page without a place."""
    folder = tmp_path_factory.mktemp("site")
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=PROJECT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[str, Resources]:
    return {path.name: Resources(path.read_text(encoding="utf-8")) for path in sorted(site.glob("*.html"))}


def test_every_page_is_in_the_site(pages: dict[str, Resources]) -> None:
    names = {path.stem.lower() for path in paths()} - {"readme"}
    assert {f"{name}.html" for name in names} <= pages.keys()


def test_the_site_loads_nothing_from_a_network(site: Path, pages: dict[str, Resources]) -> None:
    for name, page in pages.items():
        outside = [address for address in page.loaded if urlsplit(address).netloc]
        assert not outside, f"{name} loads {outside}"
        for address in page.loaded:
            assert (site / unquote(urlsplit(address).path).lstrip("/")).is_file(), (
                f"{name} loads {address}, which is not there"
            )
    for style in site.rglob("*.css"):
        assert not re.findall(r"url\(\W*(?:https?:)?//[^)]*", style.read_text(encoding="utf-8")), style.name


def test_links_within_the_site_lead_somewhere(pages: dict[str, Resources]) -> None:
    """Those of the theme and of headings too, which mkdocs does not check."""
    wrong = []
    for name, page in pages.items():
        for address in page.linked:
            parts = urlsplit(address)
            if parts.scheme or parts.netloc or name == "404.html":
                continue
            target = pages.get(parts.path.removeprefix("./") or name)
            if target is None or (parts.fragment and unquote(parts.fragment) not in target.anchors):
                wrong.append(f"{name}: {address}")
    assert not wrong, "\n".join(wrong)


def test_links_of_the_pages_lead_somewhere_on_github_too() -> None:
    anchors = {path: github_anchors(path) for path in paths()}
    wrong = []
    for path in paths():
        for address in re.findall(r"\]\(([^)\s]+)\)", without_code(path.read_text(encoding="utf-8"))):
            parts = urlsplit(address)
            if parts.scheme:
                continue
            target = (path.parent / parts.path).resolve() if parts.path else path
            if not target.exists() or (parts.fragment and parts.fragment not in anchors.get(target, ())):
                wrong.append(f"{path.name}: {address}")
    assert not wrong, "\n".join(wrong)


def without_code(text: str) -> str:
    return re.sub(r"^```.*?^```|`[^`\n]*`(?!\])", "", text, flags=re.MULTILINE | re.DOTALL)


def github_anchors(path: Path) -> set[str]:
    """The anchors that GitHub gives to the headings: lower case, no punctuation, a hyphen a space."""
    text = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in re.findall(r"^#+ (.+)$", text, re.M)}


def test_every_option_of_every_command_is_in_the_reference(site: Path) -> None:
    from tests.documentation.test_options import ALL_OPTIONS, APPLICATION

    page = (site / "commands.html").read_text(encoding="utf-8")
    assert [option for option in ALL_OPTIONS if option not in page] == []
    commands: Any = APPLICATION
    assert [name for name in commands.commands if f'id="mlcbuild-{name}"' not in page] == []


def test_the_search_index_has_the_text(site: Path) -> None:
    index = json.loads((site / "search/search_index.json").read_text(encoding="utf-8"))
    assert any(entry["location"] == "command-line.html#exit-codes" for entry in index["docs"])


@pytest.mark.skipif(_CHROMIUM is None, reason="no Chromium")
def test_search_works_in_a_browser_without_a_server(site: Path, tmp_path: Path) -> None:
    assert _CHROMIUM
    options = ("--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}", "--dump-dom")
    address = f"file://{site}/index.html?q=quarantine"
    command = [_CHROMIUM, *options, "--virtual-time-budget=10000", address]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=120).stdout
    results = shown.partition('class="md-search-result__list"')[2]
    assert "messages.html" in results
    assert "md-search-result__link" in results


def test_diagrams_are_shown_as_drawings(pages: dict[str, Resources]) -> None:
    """Mermaid would be fetched from a network."""
    drawn = {address for page in pages.values() for address in page.loaded if "diagrams/" in address}
    assert drawn == {f"assets/diagrams/{path.name}" for path in (PROJECT / "website/theme/assets/diagrams").iterdir()}
    assert len(drawn) == sum(len(diagrams(path.read_text(encoding="utf-8"))) for path in paths()) > 0
