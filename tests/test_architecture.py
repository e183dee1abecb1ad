"""The doors between rooms, as ARCHITECTURE.md draws them: who imports whom, read from the sources."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "mlcbuild"

# What families share lies in compiler/models.
MOST_LINES_OF_A_FAMILY = 150
# Modules beside the rooms.
EVERYBODYS = frozenset({"system_programs", "errors", "figures", "plugins", "regular_files", "suggestions"})
# Room → the rooms that it may import, itself aside.
DOORS: dict[str, frozenset[str]] = {
    "cli": frozenset(
        {
            "doctor",
            "query",
            "release",
            "rules",
            "workspace",
            "engine",
            "cache",
            "execution",
            "toolchains",
            "runtime",
            "tuning",
        }
    ),
    "doctor": frozenset({"engine", "cache", "execution", "toolchains"}),
    "query": frozenset({"workspace"}),
    "release": frozenset({"cache"}),
    "rules": frozenset({"workspace", "engine", "tuning"}),
    "workspace": frozenset(),
    "engine": frozenset({"cache"}),
    "cache": frozenset(),
    "execution": frozenset({"engine", "cache", "toolchains"}),
    "toolchains": frozenset({"engine", "cache"}),
    "compiler": frozenset({"runtime"}),
    "runtime": frozenset(),
    "tuning": frozenset({"cache"}),
}
# They import nothing heavy: lists of names, so that what can be asked for is shown without a worker; the form of
# manifests, which rules read; and the tokenizers of GGUF files, which init tries.
NAMES = frozenset(
    {
        "mlcbuild.compiler.backends.cuda.architectures",
        "mlcbuild.compiler.formats.compressed_tensors.described_model",
        "mlcbuild.compiler.formats.compressed_tensors.module_form",
        "mlcbuild.compiler.calibration.budget",
        "mlcbuild.compiler.formats.exact_forms",
        "mlcbuild.compiler.formats.gguf.described_model",
        "mlcbuild.compiler.kernel_description",
        "mlcbuild.compiler.manifest",
        "mlcbuild.compiler.models.config",
        "mlcbuild.compiler.models.configuring",
        "mlcbuild.compiler.models.description",
        "mlcbuild.compiler.models.family",
        "mlcbuild.compiler.models.gguf.architecture",
        "mlcbuild.compiler.models.checkpoints.parameters",
        "mlcbuild.compiler.models.resolving",
        "mlcbuild.compiler.models.sizes",
        "mlcbuild.compiler.operator_pattern",
        "mlcbuild.compiler.phases.places",
        "mlcbuild.compiler.quantization.kept_weights",
        "mlcbuild.compiler.quantization.mixed.precision",
        "mlcbuild.compiler.quantization.mixed.scheme",
        "mlcbuild.compiler.quantization.scheme",
        "mlcbuild.compiler.tokenizer.from_gguf",
        "mlcbuild.compiler.weights.adapter",
        "mlcbuild.compiler.weights.checkpoint_format",
        "mlcbuild.compiler.weights.gguf_file",
        "mlcbuild.compiler.weights.gguf_parts",
    }
)
ENGINE_VALUES = frozenset({"mlcbuild.engine.action", "mlcbuild.engine.executor"})
HEAVY = frozenset({"tvm", "tvm_ffi", "ray", "boto3", "botocore", "grpc", "torch", "numpy", "transformers", "triton"})
# Who talks to a kind of server may import its client, inside functions.
CLIENTS: dict[tuple[str, ...], frozenset[str]] = {
    ("cache", "remote", "s3"): frozenset({"boto3", "botocore"}),
    ("cache", "remote", "grpc"): frozenset({"grpc"}),
    ("mlcbuild", "execution", "ray"): frozenset({"ray"}),
}


def imports_of(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def imports_outside_functions(node: ast.AST) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom) and child.module:
            yield child.module
        elif not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from imports_outside_functions(child)


def modules_of(room: str) -> list[Path]:
    return sorted((PACKAGE / room).resolve().rglob("*.py"))


def sources() -> list[Path]:
    """All modules of ours, each once, by their paths in the package."""
    return sorted({path for room in DOORS for path in (PACKAGE / room).rglob("*.py")} | set(PACKAGE.glob("*.py")))


def backend_of(path: Path) -> str:
    """The kind of the backend that a module is part of, "" for all others."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    for folder in (("compiler", "backends"), ("rules", "backends")):
        if parts[:2] == folder and len(parts) > 2:
            return parts[2]
    return ""


def named_kinds(tree: ast.AST, kinds: frozenset[str]) -> Iterator[ast.expr]:
    """Where a value is compared with a kind's name, or looked up in a table of kinds."""
    for node in ast.walk(tree):
        asked: list[ast.expr | None] = []
        if isinstance(node, ast.Compare):
            asked = [node.left, *node.comparators]
        elif isinstance(node, ast.Dict):
            asked = list(node.keys)
        elif isinstance(node, ast.MatchValue):
            asked = [node.value]
        for one in asked:
            members = one.elts if isinstance(one, ast.Tuple | ast.List | ast.Set) else [one]
            yield from (each for each in members if isinstance(each, ast.Constant) and each.value in kinds)


def client_of(path: Path) -> frozenset[str]:
    return CLIENTS.get(path.parent.parts[-3:], frozenset())


def test_each_room_imports_only_through_its_doors() -> None:
    wrong = []
    for room, allowed in DOORS.items():
        for path in modules_of(room):
            for name in imports_of(path):
                parts = name.split(".")
                if parts[0] != "mlcbuild" or len(parts) == 1 or parts[1] in EVERYBODYS | {room}:
                    continue
                if parts[1] not in allowed and not (name in NAMES and room in ("cli", "rules")):
                    wrong.append(f"{room}/{path.name} imports {name}")
    assert not wrong, "\n".join(wrong)


def test_rules_and_executors_see_the_engine_as_values_alone() -> None:
    wrong = [
        f"{room}/{path.name} imports {name}"
        for room in ("rules", "execution")
        for path in modules_of(room)
        for name in imports_of(path)
        if name.startswith("mlcbuild.engine") and name not in ENGINE_VALUES
    ]
    assert not wrong, "\n".join(wrong)


def test_the_engine_and_the_cache_know_no_tvm_no_ray_and_no_client_of_a_server() -> None:
    wrong = [
        f"{room}/{path.name} imports {name}"
        for room in ("workspace", "query", "release", "rules", "engine", "cache", "toolchains")
        for path in modules_of(room)
        for name in imports_of(path)
        if name.partition(".")[0] in HEAVY - client_of(path)
    ]
    assert not wrong, "\n".join(wrong)


def test_clients_of_servers_are_imported_inside_functions_alone() -> None:
    wrong = [
        f"{path.relative_to(PACKAGE.parent)} imports {name}"
        for room in DOORS
        for path in modules_of(room)
        for name in imports_outside_functions(ast.parse(path.read_text()))
        if name.partition(".")[0] in frozenset().union(*CLIENTS.values())
    ]
    assert not wrong, "\n".join(wrong)


def test_importing_what_talks_to_servers_loads_no_client_of_theirs() -> None:
    modules = [
        f"mlcbuild.cache.remote.{path.parent.name}.{path.stem}" for path in modules_of("cache") if client_of(path)
    ]
    assert {f"mlcbuild.cache.remote.{kind}.transport" for kind in ("s3", "grpc")} <= set(modules)
    heavy = sorted(HEAVY | {"urllib3", "asyncio"})
    program = f"import sys, {', '.join(modules)}; print([name for name in {heavy!r} if name in sys.modules])"
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "[]"


def test_a_quantization_scheme_is_asked_without_loading_numpy_or_tvm() -> None:
    modules = [
        f"mlcbuild.compiler.quantization.schemes.{path.stem}"
        for path in sorted((PACKAGE / "compiler/quantization/schemes").glob("*.py"))
    ]
    assert "mlcbuild.compiler.quantization.schemes.q4f16_1" in modules
    program = f"import sys, {', '.join(modules)}; print([name for name in {sorted(HEAVY)!r} if name in sys.modules])"
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "[]"


def test_a_family_says_what_its_models_are_without_loading_numpy_or_tvm() -> None:
    program = (
        "import sys; from mlcbuild.rules.families import families; assert families(); "
        f"print([name for name in {sorted(HEAVY)!r} if name in sys.modules])"
    )
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "[]"


def test_folders_of_shared_parts_of_models_import_those_before_them_alone() -> None:
    folders = ("architecture", "checkpoints", "configuration", "gguf", "caches", "layers", "networks")
    without_tvm = folders[: folders.index("caches")]
    models = PACKAGE / "compiler" / "models"
    assert {path.parent.name for path in models.glob("*/*.py")} == set(folders)
    wrong = []
    for path in sorted(models.rglob("*.py")):
        folder = path.parent.name
        for name in imports_of(path):
            other = name.split(".")[3] if name.startswith("mlcbuild.compiler.models.") else ""
            later = folder in folders and other in folders[folders.index(folder) + 1 :]
            below = folder == "models" and other in folders and other not in without_tvm
            if later or below or (folder in without_tvm and name.partition(".")[0] in HEAVY):
                wrong.append(f"{path.relative_to(PACKAGE)} imports {name}")
    assert not wrong, "\n".join(wrong)


def test_no_stage_and_no_family_imports_a_family() -> None:
    families = PACKAGE / "compiler" / "families"
    wrong = []
    for path in modules_of("compiler"):
        folder = path.parent.name if path.is_relative_to(families) else ""
        for name in imports_of(path):
            if name.startswith("mlcbuild.compiler.families") and name.split(".")[3:4] != [folder]:
                wrong.append(f"{path.relative_to(PACKAGE)} imports {name}")
    assert not wrong, "\n".join(wrong)


def test_a_family_is_a_declaration() -> None:
    folders = [path.parent for path in (PACKAGE / "compiler" / "families").glob("*/family.py")]
    lines = {folder.name: sum(len(file.read_text().splitlines()) for file in folder.glob("*.py")) for folder in folders}
    assert {name: count for name, count in lines.items() if count > MOST_LINES_OF_A_FAMILY} == {}


def test_every_room_is_named_in_the_architecture_page() -> None:
    page = (PACKAGE.parent / "ARCHITECTURE.md").read_text()
    rooms = {path.name for path in PACKAGE.iterdir() if path.is_dir() and (path / "__init__.py").exists()}
    assert rooms == set(DOORS)
    assert all(f"mlcbuild/{room}/" in page or f"mlcbuild.{room}" in page for room in rooms)


def test_no_backend_is_imported_by_any_module_but_its_own() -> None:
    wrong = []
    for path in sources():
        for name in imports_of(path):
            parts = name.split(".")
            if parts[0] == "mlcbuild" and "backends" in parts and len(parts) > parts.index("backends") + 1:
                kind = parts[parts.index("backends") + 1]
                if kind != backend_of(path):
                    wrong.append(f"{path.relative_to(PACKAGE)} imports {name}")
    assert not wrong, "\n".join(wrong)


def test_what_depends_on_the_kind_of_target_is_in_its_backend() -> None:
    kinds = frozenset(path.stem for path in (PACKAGE / "rules/backends").glob("*.py")) - {"__init__"}
    assert {"cpu", "cuda"} <= kinds
    wrong = []
    for path in sources():
        shown = path.relative_to(PACKAGE).as_posix()
        if backend_of(path) or shown == "runtime/devices.py":  # a table of devices by the kind of TVM's modules
            continue
        tree = ast.parse(path.read_text())
        wrong += [f"{shown}:{node.lineno} asks for a kind by name" for node in named_kinds(tree, kinds)]
        literals = (node for node in ast.walk(tree) if isinstance(node, ast.Constant) and node.value == "cuda")
        wrong += [f"{shown}:{node.lineno} names a kind" for node in literals]
    assert not wrong, "\n".join(wrong)
