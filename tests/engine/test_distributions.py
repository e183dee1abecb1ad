"""A distribution's fingerprint is its content: the same in every environment, another after every change."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path

import pytest

from mlcbuild.cache.stat_cache import identity_of
from mlcbuild.engine import distributions
from mlcbuild.engine.distributions import Distributions
from mlcbuild.engine.json_cache import JsonCache
from mlcbuild.errors import LocalEnvironmentError
from tests.engine.installed_wheels import install

FILES = {"alpha/__init__.py": b"x = 1\n", "alpha/data,with comma.txt": b"1", "alpha/é.so": b"\x7fELF"}


def fingerprint(*sites: Path, name: str = "alpha", memory: Path | None = None) -> str:
    store = JsonCache(memory, kind="test")
    found = Distributions(store, [str(site) for site in sites]).fingerprint(name)
    store.save()
    return found


def test_environment_and_installer_do_not_count(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "elsewhere" / "two"
    install(one, "alpha", "1.0", FILES, extra_rows=("../../../bin/alpha,sha256=aaaa,10",))
    information = install(two, "alpha", "1.0", FILES, installer="uv", extra_rows=("../../../bin/alpha,sha256=bbbb,12",))
    (information / "REQUESTED").touch()
    with (information / "RECORD").open("a") as record:
        record.write(f"alpha/__pycache__/__init__.cpython-311.pyc,,\n{information.name}/REQUESTED,sha256=cc,0\n")
    assert fingerprint(one) == fingerprint(two)


@pytest.mark.parametrize("change", ["content", "one more", "one less", "renamed", "version"])
def test_what_the_wheel_brought_counts(tmp_path: Path, change: str) -> None:
    files = dict(FILES)
    version = "1.0"
    if change == "content":
        files["alpha/__init__.py"] = b"x = 2\n"
    elif change == "one more":
        files["alpha/more.py"] = b""
    elif change == "one less":
        del files["alpha/é.so"]
    elif change == "renamed":
        files["alpha/f.so"] = files.pop("alpha/é.so")
    else:
        version = "1.0.post1"
    install(tmp_path / "one", "alpha", "1.0", FILES)
    install(tmp_path / "two", "alpha", version, files)
    assert fingerprint(tmp_path / "one") != fingerprint(tmp_path / "two")


def test_names_are_compared_as_python_packaging_does(tmp_path: Path) -> None:
    install(tmp_path, "Alpha_Beta.Gamma", "1", FILES)
    assert fingerprint(tmp_path, name="alpha-beta-gamma") == fingerprint(tmp_path, name="ALPHA.beta_gamma")


def test_the_first_folder_of_the_search_path_wins(tmp_path: Path) -> None:
    install(tmp_path / "one", "alpha", "1.0", FILES)
    install(tmp_path / "two", "alpha", "2.0", FILES)
    assert fingerprint(tmp_path / "two", tmp_path / "one") == fingerprint(tmp_path / "two")


def test_a_missing_distribution_is_told(tmp_path: Path) -> None:
    with pytest.raises(LocalEnvironmentError, match="alpha is not installed"):
        fingerprint(tmp_path)


def test_without_a_record_the_files_themselves_count(tmp_path: Path) -> None:
    information = install(tmp_path, "alpha", "1.0", FILES)
    (information / "RECORD").unlink()
    before = fingerprint(tmp_path)
    (tmp_path / "alpha/__pycache__").mkdir()
    (tmp_path / "alpha/__pycache__/__init__.cpython-311.pyc").write_bytes(b"byte code")
    assert fingerprint(tmp_path) == before
    (tmp_path / "alpha/é.so").write_bytes(b"\x7fELF2")
    assert fingerprint(tmp_path) != before


def test_without_a_record_and_without_files_it_is_told(tmp_path: Path) -> None:
    information = install(tmp_path, "alpha", "1.0", FILES)
    (information / "RECORD").unlink()
    shutil.rmtree(tmp_path / "alpha")
    with pytest.raises(LocalEnvironmentError, match=r"alpha 1\.0 cannot be read.*\n.*force-reinstall"):
        fingerprint(tmp_path)


def test_an_editable_distribution_counts_by_its_working_tree(tmp_path: Path) -> None:
    project = tmp_path / "my project"
    (project / "src/alpha").mkdir(parents=True)
    (project / "src/alpha/__init__.py").write_bytes(b"x = 1\n")
    information = install(tmp_path / "site", "alpha", "1.0", {"__editable__.alpha.pth": b"path"})
    (information / "direct_url.json").write_text(json.dumps({"dir_info": {"editable": True}, "url": project.as_uri()}))
    (information / "top_level.txt").write_text("alpha\n")
    before = fingerprint(tmp_path / "site", memory=tmp_path / "memory")
    (project / "src/alpha/__init__.py").write_bytes(b"x = 2\n")
    assert fingerprint(tmp_path / "site", memory=tmp_path / "memory") != before


def test_an_editable_distribution_counts_what_its_links_lead_to(tmp_path: Path) -> None:
    project = tmp_path / "project"
    for path in ("alpha/__init__.py", "rules/__init__.py"):
        (project / path).parent.mkdir(parents=True)
        (project / path).write_bytes(b"x = 1\n")
    (project / "alpha/rules").symlink_to("../rules")
    information = install(tmp_path / "site", "alpha", "1.0", {"__editable__.alpha.pth": b"path"})
    (information / "direct_url.json").write_text(json.dumps({"dir_info": {"editable": True}, "url": project.as_uri()}))
    (information / "top_level.txt").write_text("alpha\n")
    before = fingerprint(tmp_path / "site")
    (project / "rules/__init__.py").write_bytes(b"x = 2\n")
    assert fingerprint(tmp_path / "site") != before


def make_old(site: Path) -> None:
    """Make all files of an installation older than what a second write in the same tick could hide."""
    for path in sorted(site.rglob("*"), reverse=True):
        os.utime(path, (1_700_000_000, 1_700_000_000))


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock of the tests is some seconds ahead, because no program can set a file's time of change."""
    monkeypatch.setattr(distributions, "now_nanoseconds", lambda: time.time_ns() + 10 * 10**9)


def patched(site: Path, how: str) -> None:
    if how == "edited, with its old size and times":
        status = (site / "alpha/__init__.py").stat()
        (site / "alpha/__init__.py").write_bytes(b"x = 2\n")
        os.utime(site / "alpha/__init__.py", ns=(status.st_atime_ns, status.st_mtime_ns))
    elif how == "replaced":
        (site / "new").write_bytes(b"x = 3\n")
        (site / "new").rename(site / "alpha/__init__.py")
    elif how == "removed":
        (site / "alpha/é.so").unlink()
    elif how == "another library":
        (site / "alpha/é.so").write_bytes(b"\x7fELG")
    elif how == "data":
        (site / "alpha/data,with comma.txt").write_bytes(b"2")
    elif how == "a header":
        (site / "alpha/include/alpha.h").write_bytes(b"#define A 2\n")
    elif how == "a module that hides another":
        (site / "alpha/deep/more.cpython-311-x86_64-linux-gnu.so").write_bytes(b"\x7fELF")
    elif how == "a package that hides a module":
        (site / "alpha/deep/more").mkdir()
        (site / "alpha/deep/more/__init__.py").write_bytes(b"")
    else:
        os.utime(site / "alpha/__init__.py")
        (site / "alpha/__pycache__").mkdir()
        (site / "alpha/__pycache__/__init__.cpython-311.pyc").write_bytes(b"byte code")
        (site / "alpha/notes.txt").write_text("of a person")


PATCHES = (
    "edited, with its old size and times",
    "replaced",
    "removed",
    "another library",
    "data",
    "a header",
    "a module that hides another",
    "a package that hides a module",
)


@pytest.mark.usefixtures("later")
@pytest.mark.parametrize("how", [*PATCHES, "touched"])
def test_a_package_that_is_patched_in_place_counts_as_it_is(tmp_path: Path, how: str) -> None:
    files = {**FILES, "alpha/include/alpha.h": b"#define A 1\n", "alpha/deep/more.py": b"more = 1\n"}
    install(tmp_path / "site", "alpha", "1.0", files)
    make_old(tmp_path / "site")
    memory = tmp_path / "memory"
    before = fingerprint(tmp_path / "site", memory=memory)
    patched(tmp_path / "site", how)
    after = fingerprint(tmp_path / "site", memory=memory)
    assert (after == before) is (how == "touched")
    assert after == fingerprint(tmp_path / "site")


@pytest.mark.parametrize("how", [how for how in PATCHES if how != "a header"])
def test_the_no_op_check_watches_what_python_may_load(tmp_path: Path, how: str) -> None:
    files = {**FILES, "alpha/include/alpha.h": b"#define A 1\n", "alpha/deep/more.py": b"more = 1\n"}
    site = tmp_path / "site"
    install(site, "alpha", "1.0", files)
    make_old(site)
    found = Distributions(JsonCache(None, kind="test"), [str(site)])
    found.fingerprint("alpha")

    def stats() -> dict[str, object]:
        paths = map(Path, found.observed)
        return {str(path): identity_of(path.stat()) if path.exists() else None for path in paths}

    before = stats()
    patched(site, how)
    assert stats() != before


@pytest.mark.usefixtures("later")
def test_a_second_look_reads_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path / "site", "alpha", "1.0", FILES)
    (tmp_path / "site/alpha/added.py").write_text("added = 1\n")
    make_old(tmp_path / "site")
    before = fingerprint(tmp_path / "site", memory=tmp_path / "memory")
    monkeypatch.setattr(distributions, "_content", lambda path: pytest.fail(f"{path} was read again"))
    assert fingerprint(tmp_path / "site", memory=tmp_path / "memory") == before


def test_what_was_touched_just_now_is_not_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path / "site", "alpha", "1.0", FILES)
    fingerprint(tmp_path / "site", memory=tmp_path / "memory")
    read = []

    def content(path: Path) -> str:
        read.append(path)
        return "content"

    monkeypatch.setattr(distributions, "_content", content)
    fingerprint(tmp_path / "site", memory=tmp_path / "memory")
    assert read


def test_a_distribution_of_headers_is_watched_whole(tmp_path: Path) -> None:
    files = {"vendor/include/a.h": b"", "vendor/lib/libx.so.1": b""}
    install(tmp_path, "headers", "1", files)
    found = Distributions(JsonCache(None, kind="test"), [str(tmp_path)])
    found.fingerprint("headers")
    assert {f"{tmp_path}/{path}" for path in files} <= found.observed


def test_packages_lead_to_their_distributions(tmp_path: Path) -> None:
    install(tmp_path, "PyAlpha", "1", {"alpha/__init__.py": b"", "single.py": b"", "_fast.cpython-311-x86_64.so": b""})
    install(tmp_path, "ns-one", "1", {"shared/one/__init__.py": b""})
    install(tmp_path, "ns-two", "1", {"shared/two/__init__.py": b""})
    found = Distributions(JsonCache(None, kind="test"), [str(tmp_path)])
    assert found.providing("alpha") == ("pyalpha",)
    assert found.providing("single") == ("pyalpha",)
    assert found.providing("_fast") == ("pyalpha",)
    assert found.providing("shared") == ("ns-one", "ns-two")
    assert found.providing("nothing") == ()


def test_what_provides_packages_is_read_once_whatever_else_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site, work, memory = tmp_path / "site", tmp_path / "work", tmp_path / "memory.json"
    work.mkdir()
    install(site, "alpha", "1", FILES)

    def providing(package: str) -> tuple[str, ...]:
        store = JsonCache(memory, kind="test")
        found = Distributions(store, [str(work), str(site)]).providing(package)
        store.save()
        return found

    assert providing("alpha") == ("alpha",)
    (work / "something.txt").touch()
    with monkeypatch.context() as patch:
        patch.setattr(distributions, "_top_level_names", lambda _: pytest.fail("read again"))
        assert providing("alpha") == ("alpha",)
    install(site, "beta", "1", {"beta.py": b""})
    assert providing("beta") == ("beta",)
