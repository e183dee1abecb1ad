"""A distribution's fingerprint is its content: the same in every environment, another after every change."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

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


def test_memory_is_believed_until_the_record_changes(tmp_path: Path) -> None:
    information = install(tmp_path / "site", "alpha", "1.0", FILES)
    memory = tmp_path / "memory.json"
    before = fingerprint(tmp_path / "site", memory=memory)
    marked = JsonCache(memory, kind="test")
    identity, _ = marked.get(f"distribution {information}")
    marked.set(f"distribution {information}", [identity, "remembered"])
    marked.save()
    assert fingerprint(tmp_path / "site", memory=memory) == "remembered"
    with (information / "RECORD").open("a") as record:
        record.write("alpha/more.py,sha256=abc,1\n")
    assert fingerprint(tmp_path / "site", memory=memory) not in ("remembered", before)


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
