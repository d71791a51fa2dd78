"""Import rules that import-linter cannot express: lazy model libraries, the few imports of core."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from subprocess import run

import pytest

from tests.repo.files import PACKAGES, python_files
from tests.shared import ROOT

pytestmark = pytest.mark.live

MODEL_LIBRARIES = (
    "ctranslate2",
    "faster_whisper",
    "hassil",
    "home_assistant_intents",
    "huggingface_hub",
    "onnxruntime",
    "pocketsphinx",
    "pymicro_features",
    "pymicro_wakeword",
    "sounddevice",
    "tokenizers",
    "torch",
    "transformers",
)


OF_AN_EXTRA = (
    "devices.esphome.adoption.adoption",
    *(
        f"devices.esphome.{name}"
        for name in ("announcer", "connection", "controls", "door", "errors", "link")
    ),
    "bench.client.satellite",
    "bench.voice.satellite",
)
"Modules that are imported only where the extra of their library is installed and used."


def _imports(path: Path) -> Iterator[tuple[ast.Import | ast.ImportFrom, str]]:
    """Each import of a file with the dotted name it starts from."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node, alias.name
        elif isinstance(node, ast.ImportFrom):
            yield node, node.module or ""


def test_core_imports_the_standard_library_numpy_and_msgspec_only() -> None:
    allowed = {*sys.stdlib_module_names, "numpy", "msgspec", "core"}
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno} {name}"
        for path in python_files("core")
        for node, name in _imports(path)
        if name.split(".")[0] not in allowed
    ]
    assert found == []


def test_no_file_imports_from_a_test_module() -> None:
    """A test module may move or go, so helpers of several tests have a module of their own."""
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno} {name}"
        for path in python_files("tests")
        for node, module in _imports(path)
        for name in (module, *(one.name for one in node.names))
        if module.startswith("tests.") and name.split(".")[-1].startswith("test_")
    ]
    assert found == []


def test_own_packages_are_imported_with_a_module_name() -> None:
    """`import web` could mean another library's `web`; `from web.x import y` cannot."""
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno} {name}"
        for path in python_files(*PACKAGES)
        for node, name in _imports(path)
        if isinstance(node, ast.Import) and name.split(".")[0] in PACKAGES
    ]
    assert found == []


def test_the_product_does_not_import_its_tests() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in python_files(*PACKAGES)
        for node, name in _imports(path)
        if name.split(".")[0] in {"tests", "pytest"}
    ]
    assert found == []


def _module(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def test_importing_loads_no_model_library() -> None:
    """A library loads when its engine is created: starts stay fast, a missing one does no harm."""
    modules = [
        _module(path)
        for path in python_files(*PACKAGES)
        if "engines" not in path.parts
        and path.parent != ROOT / "bench" / "gpu"  # torch's own
        and _module(path) not in OF_AN_EXTRA
    ]
    code = (
        "import sys; from importlib import import_module\n"
        f"for name in {modules!r}: import_module(name)\n"
        f"print([name for name in {MODEL_LIBRARIES!r} if name in sys.modules])"
    )
    done = run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


def test_the_help_loads_only_the_parser() -> None:
    """The help appears within 0.15 s; numpy, msgspec and asyncio alone take longer."""
    code = (
        "import sys; before = set(sys.modules)\n"
        "from server.__main__ import main\n"
        "assert main([]) == 0\n"
        "print('modules:', *sorted(set(sys.modules) - before))"
    )
    done = run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("usage: earshot")  # bare `earshot` is a question for help
    loaded = done.stdout.splitlines()[-1].split()[1:]
    assert [name for name in loaded if name.split(".")[0] not in sys.stdlib_module_names] == [
        "server",
        "server.__main__",
    ]
    assert {"asyncio", "ssl", "socket", "email", "importlib.metadata"}.isdisjoint(loaded)


@pytest.mark.parametrize("package", PACKAGES)
def test_every_folder_with_code_is_a_package(package: str) -> None:
    folders = {path.parent for path in python_files(package)}
    assert folders
    assert [str(f.relative_to(ROOT)) for f in folders if not (f / "__init__.py").is_file()] == []
