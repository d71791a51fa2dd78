"""The build of llama-server: a release is unpacked, a build that broke off goes on, and a failure
says what the compiler said. The program is a tiny one, with llama.cpp's layout."""

import io
import shutil
import tarfile
from pathlib import Path
from typing import TextIO

import pytest

from engines.llm.llama_cpp.files import PROGRAM_PATH
from server.commands.engines.folder import log_file_of
from server.commands.engines.llama_cpp_install import (
    BUILD,
    SOURCE,
    TOOLS,
    TREE,
    LlamaCppInstaller,
    read_installation,
    unpack,
)
from server.commands.engines.pip import InstallError
from server.models.progress import DownloadProgress
from tests.conftest import require

pytestmark = pytest.mark.live

CMAKE_LISTS = """cmake_minimum_required(VERSION 3.14)
project(llama CXX)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
add_executable(llama-server main.cpp)
"""
PROGRAM = '#include <cstdio>\nint main() { std::puts("version: tiny"); }\n'


def installer(folder: Path, out: TextIO | None = None) -> LlamaCppInstaller:
    return LlamaCppInstaller(folder, "cpu", DownloadProgress(out or io.StringIO()))


def write_source(folder: Path, program: str = PROGRAM) -> None:
    (folder / SOURCE).mkdir(parents=True, exist_ok=True)
    (folder / SOURCE / "CMakeLists.txt").write_text(CMAKE_LISTS)
    (folder / SOURCE / "main.cpp").write_text(program)


def require_compiler() -> None:
    require(all(map(shutil.which, TOOLS["cpu"])), "cmake and a C++ compiler")


def test_a_build_that_broke_off_goes_on(tmp_path: Path) -> None:
    require_compiler()
    folder, out = tmp_path / "llama_cpp", io.StringIO()
    write_source(folder, "int main() { return no_such_name; }\n")
    with pytest.raises(InstallError, match=r"the build failed: .*no_such_name"):
        installer(folder).install()
    assert "no_such_name" in log_file_of(folder).read_text()
    assert read_installation(folder) is None
    write_source(folder)
    installation = installer(folder, out).install()
    assert out.getvalue().startswith(f"  continuing with {folder}\n")
    assert read_installation(folder) == installation
    assert sorted(path.name for path in folder.iterdir()) == ["bin", "earshot-engine.json"]
    built = (folder / PROGRAM_PATH).stat().st_mtime_ns
    assert installer(folder).install() == installation
    assert (folder / PROGRAM_PATH).stat().st_mtime_ns == built


def test_a_program_that_does_not_start_is_not_installed(tmp_path: Path) -> None:
    require_compiler()
    folder = tmp_path / "llama_cpp"
    write_source(folder, '#include <cstdio>\nint main() { std::perror("no GPU"); return 3; }\n')
    with pytest.raises(InstallError, match="llama-server does not start: no GPU"):
        installer(folder).install()
    assert read_installation(folder) is None
    assert (folder / BUILD).is_dir()


def test_only_llama_cpp_is_unpacked(tmp_path: Path) -> None:
    files = {
        "llama_cpp_python-0.3.36/setup.py": "raise SystemExit",
        f"{TREE}CMakeLists.txt": CMAKE_LISTS,
        f"{TREE}src/llama.cpp": "",
        f"{TREE}models/vocabulary.gguf": "GGUF",
    }
    unpack(archive(tmp_path / "release.tar.gz", files), tmp_path / SOURCE)
    found = {path.relative_to(tmp_path / SOURCE) for path in (tmp_path / SOURCE).rglob("*.*")}
    assert found == {Path("CMakeLists.txt"), Path("src/llama.cpp")}


@pytest.mark.parametrize("name", ["setup.py", f"{TREE}../../../../outside.txt"])
def test_another_archive_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InstallError, match=r"release\.tar\.gz"):
        unpack(archive(tmp_path / "release.tar.gz", {name: ""}), tmp_path / "a" / SOURCE)
    assert not (tmp_path / "outside.txt").exists()


def test_a_damaged_archive_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "release.tar.gz"
    path.write_bytes(b"no archive")
    with pytest.raises(InstallError, match="is no readable archive"):
        unpack(path, tmp_path / SOURCE)


def archive(path: Path, files: dict[str, str]) -> Path:
    with tarfile.open(path, "w:gz") as opened:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(text)
            opened.addfile(member, io.BytesIO(text.encode()))
    return path
