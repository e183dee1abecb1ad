"""The wheel: whole, and all that a user needs in an empty environment, from `init` to generated text."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.compiler.tiny_models import checkpoint, write_gguf
from tests.documentation.following import follow
from tests.documentation.worlds import tiny_model
from tests.end_to_end.kernel_cache import KernelCache

pytestmark = pytest.mark.slow

PROJECT = Path(__file__).parents[2]
STAGE = "mlcbuild.compiler.stages.lower"
_LOCK = PROJECT / "locks/runtime.txt"
# They would lead to this checkout, or to settings of whoever runs the tests.
_LEFT_OUT = re.compile(r"PYTHON|VIRTUAL_ENV|MLCBUILD|XDG_")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("wheel")


@pytest.fixture(scope="module")
def wheel(folder: Path) -> Path:
    """The wheel of what git tracks here, as it is on disk."""
    source = folder / "source"
    for name in tracked():
        destination = source / name
        destination.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(PROJECT / name, destination, follow_symlinks=False)
    # The build backend is in the lock of this environment, so no other is fetched.
    options = ("--no-deps", "--no-build-isolation", "--quiet", "--wheel-dir", str(folder / "dist"))
    subprocess.run([sys.executable, "-m", "pip", "wheel", *options, str(source)], check=True)
    shutil.rmtree(source)
    (made,) = (folder / "dist").glob("*.whl")
    return made


@pytest.fixture(scope="module")
def environment(folder: Path, wheel: Path) -> Path:
    """The programs of an empty virtual environment, into which the wheel was installed with what it depends on."""
    subprocess.run([sys.executable, "-m", "venv", str(folder / "environment")], check=True)
    programs = folder / "environment/bin"
    constraints = folder / "constraints.txt"
    pins = re.findall(r"^(\S+==\S+)", _LOCK.read_text(encoding="utf-8"), re.MULTILINE)
    constraints.write_text("\n".join(pins), encoding="utf-8")
    install = ("-m", "pip", "install", "--quiet", "--constraint", str(constraints), str(wheel))
    subprocess.run([str(programs / "python"), *install], check=True, env=plain(folder))
    return programs


def tracked() -> list[str]:
    """The files of this checkout, with links as they are."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=PROJECT, capture_output=True, text=True, check=True)
    return [name for name in listed.stdout.split("\0") if name and os.path.lexists(PROJECT / name)]


def plain(folder: Path) -> dict[str, str]:
    """An environment for programs that have nothing of this checkout."""
    kept = {name: value for name, value in os.environ.items() if not _LEFT_OUT.match(name)}
    return {**kept, "XDG_CACHE_HOME": str(folder / "cache"), "XDG_CONFIG_HOME": str(folder / "settings")}


def sources() -> Iterator[str]:
    """The files that the import package has, by their paths in it; the rooms beside it are reached by links."""
    for name in tracked():
        first, _, rest = name.partition("/")
        if first == "mlcbuild" and not (PROJECT / name).is_symlink():
            yield name
        elif rest and (PROJECT / "mlcbuild" / first).is_symlink():
            yield f"mlcbuild/{name}"


def test_the_wheel_has_every_source_as_a_file_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        entries = [entry for entry in archive.infolist() if ".dist-info/" not in entry.filename]
        assert sorted(entry.filename for entry in entries) == sorted(sources())
        for entry in entries:
            assert stat.S_ISREG(entry.external_attr >> 16), entry.filename
            assert archive.read(entry) == (PROJECT / entry.filename).read_bytes()


def test_a_model_is_built_and_runs_from_an_empty_folder(folder: Path, environment: Path) -> None:
    root = folder / "tiny"
    root.mkdir()
    write_gguf(root / "tiny.gguf", checkpoint())

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(environment / "mlcbuild"), *arguments]
        return subprocess.run(command, cwd=root, env=plain(folder), capture_output=True, text=True, check=True)

    # Keys count code by its content, so an installation shares results with the checkout that its wheel was made of.
    program = (
        f"from mlcbuild.engine.implementation import Implementations; print(Implementations().of({STAGE!r}).digest)"
    )
    here = subprocess.run([sys.executable, "-c", program], cwd=PROJECT, capture_output=True, text=True, check=True)
    there = subprocess.run(
        [str(environment / "python"), "-c", program], cwd=root, env=plain(folder), capture_output=True, text=True
    )
    assert here.stdout == there.stdout
    # Nothing of the checkout is imported: neither by name nor by a link.
    program = "from mlcbuild import cache, rules; import sys; print(rules.__file__, cache.__file__, *sys.path)"
    command = [str(environment / "python"), "-c", program]
    shown = subprocess.run(command, cwd=root, env=plain(folder), capture_output=True, text=True, check=True).stdout
    assert str(PROJECT) not in shown
    assert shown.startswith(str(environment.parent))

    assert run("init", "tiny.gguf").stdout == f"{root}/BUILD.toml\n"
    built = run("build", "//:tiny-cpu")
    assert "mlcbuild-out/default/tiny-cpu/lib.so" in built.stdout.splitlines()
    again = run("build", "//:tiny-cpu")
    assert re.search(r"^(\d+) actions: \1 up to date", again.stderr, re.MULTILINE), again.stderr
    assert again.stdout == built.stdout
    generated = run("run", "//:tiny-cpu", "--", "--raw", "--prompt", "hello", "--max-tokens", "5", "--threads", "1")
    assert generated.stdout

    # An edit of an installed module is seen, like one of a checkout.
    (module,) = environment.parent.glob("lib/*/site-packages/mlcbuild/compiler/stages/link.py")
    module.write_text(module.read_text(encoding="utf-8") + "\nEDITED = True\n", encoding="utf-8")
    edited = run("build", "//:tiny-cpu").stderr
    assert re.search(r"^\d+ actions: \d+ up to date, 1 ran \(1 local\)", edited, re.MULTILINE), edited


def test_the_page_for_beginners_works_as_it_stands(folder: Path, environment: Path, kernel_cache: KernelCache) -> None:
    """The model is a tiny one of that name."""
    kernel_cache.lend(folder / "cache")
    root = folder / "first"
    root.mkdir()
    tiny_model(root)
    variables = {**plain(folder), "PATH": f"{environment}:{os.environ['PATH']}"}
    follow(PROJECT / "docs/getting-started.md", folder, root="first", variables=variables)
    assert {path.name for path in (root / "mlcbuild-out/default").iterdir()} == {
        "smollm2-135m-instruct-cpu",
        "smollm2-135m-instruct-q0f32",
        "smollm2-135m-instruct-q4f32_1",
    }
