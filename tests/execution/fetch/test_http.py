"""Downloads are verified and resumed, and leave no partial file."""

from __future__ import annotations

import hashlib
import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mlcbuild.errors import FetchError
from mlcbuild.execution.fetch import http
from mlcbuild.execution.fetch.observe import observe

if TYPE_CHECKING:
    from tests.execution.fetch.conftest import Site

BODY = random.Random(1).randbytes(700_000)
PIN = hashlib.sha256(BODY).hexdigest()


def fetch(file: Path, *urls: str, sha256: str = PIN) -> None:
    http.run(file=file, sha256=sha256, name=file.name, hints={"urls": list(urls)})


def test_what_is_pinned_is_written(site: Site, tmp_path: Path) -> None:
    site.pages["/weights"] = BODY
    fetch(tmp_path / "w", f"{site.url}/weights")
    assert (tmp_path / "w").read_bytes() == BODY


def test_other_bytes_are_refused_and_not_kept(site: Site, tmp_path: Path) -> None:
    site.pages["/weights"] = b"other"
    with pytest.raises(FetchError) as raised:
        fetch(tmp_path / "w", f"{site.url}/weights")
    text = str(raised.value)
    assert PIN in text
    assert hashlib.sha256(b"other").hexdigest() in text
    assert "mlcbuild fetch --update" in text
    assert list(tmp_path.iterdir()) == []


def test_without_a_pin_nothing_is_asked_for(site: Site, tmp_path: Path) -> None:
    with pytest.raises(FetchError, match="no pinned sha256") as raised:
        fetch(tmp_path / "w", f"{site.url}/weights", sha256="")
    assert "mlcbuild fetch --update" in str(raised.value)
    assert site.requests == []


def test_a_download_that_breaks_off_is_resumed_where_it_broke(site: Site, tmp_path: Path) -> None:
    site.pages["/weights"] = BODY
    site.cuts = [300_000]
    fetch(tmp_path / "w", f"{site.url}/weights")
    assert (tmp_path / "w").read_bytes() == BODY
    resumed = site.requests[1][1]
    assert (resumed["range"], resumed["if-range"]) == ("bytes=300000-", '"v1"')


def test_a_server_that_knows_no_ranges_is_read_again_from_the_start(site: Site, tmp_path: Path) -> None:
    site.pages["/weights"] = BODY
    site.cuts = [300_000, 500_000]
    site.ranges = False
    fetch(tmp_path / "w", f"{site.url}/weights")
    assert (tmp_path / "w").read_bytes() == BODY


def test_a_download_that_keeps_breaking_off_leaves_nothing(site: Site, tmp_path: Path) -> None:
    site.pages["/weights"] = BODY
    site.cuts = [10, 0, 0, 0, 0, 0]
    with pytest.raises(FetchError, match="the connection was closed after"):
        fetch(tmp_path / "w", f"{site.url}/weights")
    assert list(tmp_path.iterdir()) == []


def test_busy_servers_are_asked_again(site: Site, tmp_path: Path) -> None:
    site.pages["/weights"] = BODY
    site.failures = [503, 429]
    fetch(tmp_path / "w", f"{site.url}/weights")
    assert len(site.requests) == 3


def test_an_address_with_nothing_behind_it_is_not_asked_again(site: Site, tmp_path: Path) -> None:
    with pytest.raises(FetchError, match="HTTP 404"):
        fetch(tmp_path / "w", f"{site.url}/weights")
    assert len(site.requests) == 1


def test_the_next_address_is_tried_where_one_fails_or_serves_other_bytes(sites: list[Site], tmp_path: Path) -> None:
    sites[0].pages["/other"] = b"other"
    sites[1].pages["/weights"] = BODY
    fetch(tmp_path / "w", f"{sites[0].url}/none", f"{sites[0].url}/other", f"{sites[1].url}/weights")
    assert (tmp_path / "w").read_bytes() == BODY


def test_all_failures_are_told_together(sites: list[Site], tmp_path: Path) -> None:
    with pytest.raises(FetchError) as raised:
        fetch(tmp_path / "w", f"{sites[0].url}/a", f"{sites[1].url}/b")
    assert f"{sites[0].url}/a" in str(raised.value)
    assert f"{sites[1].url}/b" in str(raised.value)


def test_redirects_are_followed(sites: list[Site], tmp_path: Path) -> None:
    sites[0].redirects["/weights"] = f"{sites[1].url}/elsewhere"
    sites[1].pages["/elsewhere"] = BODY
    fetch(tmp_path / "w", f"{sites[0].url}/weights")
    assert (tmp_path / "w").read_bytes() == BODY


@pytest.mark.parametrize("url", ["file:///etc/hostname", "ftp://127.0.0.1/x", "weights.bin"])
def test_only_http_addresses_are_opened(url: str, tmp_path: Path) -> None:
    with pytest.raises(FetchError, match="not an http or https address"):
        fetch(tmp_path / "w", url)


def test_a_closed_port_is_told_with_advice(tmp_path: Path) -> None:
    with pytest.raises(FetchError, match="refused") as raised:
        fetch(tmp_path / "w", "http://127.0.0.1:1/x")
    assert "proxy" in str(raised.value)


def test_observing_gives_the_pin(sites: list[Site]) -> None:
    sites[1].pages["/weights"] = BODY
    assert observe("http", {"urls": [f"{sites[0].url}/none", f"{sites[1].url}/weights"]}) == PIN
