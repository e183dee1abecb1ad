"""What a folder of the workspace means: all files below it, also behind links to folders."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from mlcbuild.errors import WorkspaceError
from mlcbuild.workspace.observed import Observer
from mlcbuild.workspace.source_files import source_paths


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for path in ("p/d/one.txt", "p/d/deep/two.txt", "p/real/three.txt", "p/real/below/four.txt"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(path)
    return tmp_path


OWN = ("p/d/deep/two.txt", "p/d/one.txt")


@pytest.mark.parametrize("target", ["../real", "absolute", "../again"])
def test_links_to_folders_are_followed(root: Path, target: str) -> None:
    (root / "p/again").symlink_to("real")
    (root / "p/d/lnk").symlink_to(root / "p/real" if target == "absolute" else target)
    observer = Observer(root)
    behind = ("p/d/lnk/below/four.txt", "p/d/lnk/three.txt")
    assert source_paths(root, "p/d", observer) == (True, (OWN[0], *behind, OWN[1]))
    assert {"p/d", "p/d/lnk", "p/d/lnk/below"} <= {path.removesuffix("/.") for path in observer.paths.read}
    assert observer.paths.looked_for.keys() >= {"p/d", *OWN, *behind}


def test_two_links_to_one_folder_are_no_loop(root: Path) -> None:
    for name in ("a", "b"):
        (root / "p/d" / name).symlink_to("../real")
    assert len(source_paths(root, "p/d", Observer(root))[1]) == 6


def test_the_folder_itself_may_be_a_link(root: Path) -> None:
    (root / "p/lnk").symlink_to("d")
    assert source_paths(root, "p/lnk", Observer(root))[1] == ("p/lnk/deep/two.txt", "p/lnk/one.txt")


@pytest.mark.parametrize(("link", "target"), [("p/d/loop", "."), ("p/d/deep/loop", "../../d"), ("p/d/loop", "..")])
def test_a_link_to_a_folder_that_holds_it_is_refused_by_name(root: Path, link: str, target: str) -> None:
    (root / link).symlink_to(target)
    with pytest.raises(WorkspaceError, match=rf"the folder '{link}.*' cannot be listed: it is a link to a folder"):
        source_paths(root, "p/d", Observer(root))


def test_a_loop_over_two_links_is_refused(root: Path) -> None:
    (root / "p/d/lnk").symlink_to("../real")
    (root / "p/real/back").symlink_to("../d")
    with pytest.raises(WorkspaceError, match="'p/d/lnk/back' cannot be listed: it is a link to a folder"):
        source_paths(root, "p/d", Observer(root))


def test_links_that_lead_nowhere_stay_files_that_cannot_be_read(root: Path) -> None:
    (root / "p/d/broken").symlink_to("nowhere")
    assert "p/d/broken" in source_paths(root, "p/d", Observer(root))[1]


def test_hidden_links_are_left_out(root: Path) -> None:
    (root / "p/d/.hidden").symlink_to("../real")
    assert source_paths(root, "p/d", Observer(root))[1] == OWN


def test_a_folder_that_cannot_be_listed_is_told(root: Path) -> None:
    """Tried as an ordinary user: root lists everything."""
    program = (
        "import os, sys\n"
        "from mlcbuild.errors import WorkspaceError\n"
        "from mlcbuild.workspace.observed import Observer\n"
        "from mlcbuild.workspace.source_files import source_paths\n"
        "from pathlib import Path\n"
        "os.chdir(sys.argv[1])\n"
        "if os.getuid() == 0:\n"
        "    os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "try:\n"
        "    print(source_paths(Path('.'), 'p/d', Observer(Path('.'))))\n"
        "except WorkspaceError as error:\n"
        "    print(error)\n"
    )
    (root / "p/d/deep").chmod(0o000)
    root.chmod(0o755)
    done = subprocess.run([sys.executable, "-c", program, str(root)], capture_output=True, text=True, check=False)
    (root / "p/d/deep").chmod(0o755)
    assert "the folder 'p/d/deep' cannot be listed: Permission denied" in done.stdout, done.stderr
