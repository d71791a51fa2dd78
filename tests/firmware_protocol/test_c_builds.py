"""The C client in other people's builds: a program in C++, CMake, a component of ESP-IDF."""

import re
from pathlib import Path
from subprocess import run

import pytest

from tests.firmware_protocol.c_programs import LIBRARY, LIBRARY_WARNINGS, C, compile_c, compiler
from tests.shared import ROOT

pytestmark = pytest.mark.live

CPP_WARNINGS = ("-std=c++11", "-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Werror")
HEADERS = sorted((C / "include").rglob("*.h"))


def _functions(header: Path) -> list[str]:
    """The names of all functions that a header declares."""
    text = re.sub(r"/\*.*?\*/", "", header.read_text(encoding="utf-8"), flags=re.DOTALL)
    return re.findall(r"^[a-z][\w *]*?\b(earshot_\w+)\(", text, re.MULTILINE)


@pytest.mark.parametrize(("cc", "cpp"), [("gcc", "g++"), ("clang", "clang++")])
def test_every_function_links_from_cpp(cc: str, cpp: str, tmp_path: Path) -> None:
    """The firmware of xiaozhi, Arduino and ESPHome are C++."""
    library = tmp_path / "library.o"
    compile_c(cc, *LIBRARY_WARNINGS, "-r", "-nostdlib", *LIBRARY, "-o", library)
    sources = []
    for index, header in enumerate(HEADERS):
        lines = [f'#include "{header.relative_to(C / "include")}"', "void use(const void *);"]
        lines.append(f"void use_{index}() {{")
        lines += [f"  use(reinterpret_cast<const void *>(&{name}));" for name in _functions(header)]
        sources.append(tmp_path / f"use_{index}.cpp")
        sources[-1].write_text("\n".join([*lines, "}"]) + "\n", encoding="utf-8")
    calls = "".join(f"void use_{index}(); " for index in range(len(HEADERS)))
    calls += "int main() { " + "".join(f"use_{index}(); " for index in range(len(HEADERS))) + "}"
    sources.append(tmp_path / "main.cpp")
    sources[-1].write_text(f"void use(const void *) {{}}\n{calls}\n", encoding="utf-8")
    compile_c(cpp, *CPP_WARNINGS, *sources, library, "-o", tmp_path / "a")
    assert run([tmp_path / "a"], check=False).returncode == 0


def test_every_public_function_is_declared_in_a_header() -> None:
    """Every public function of the sources is declared in a header that the test above reads."""
    text = "\n".join(path.read_text(encoding="utf-8") for path in LIBRARY)
    defined = set(re.findall(r"^(?!static)[a-z][\w *]*?\b(earshot_\w+)\(", text, re.MULTILINE))
    inner = {name for path in (C / "src").glob("*.h") for name in _functions(path)}
    declared = [name for header in HEADERS for name in _functions(header)]
    assert sorted(declared) == sorted(defined - inner)


def _cmake(*arguments: str | Path) -> None:
    done = run(
        [compiler("cmake"), *map(str, arguments)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def _build_device(folder: Path, how: str, language: str, *options: str) -> None:
    """Builds and runs a user's program that finds the library in this way."""
    folder.mkdir()
    source = f"main.{'cpp' if language == 'CXX' else 'c'}"
    (folder / source).write_text(
        '#include "earshot_xiaozhi.h"\n'
        "int main(void) { return earshot_status_name(EARSHOT_OK) == 0; }\n",
        encoding="utf-8",
    )
    (folder / "CMakeLists.txt").write_text(
        f"cmake_minimum_required(VERSION 3.16)\nproject(device {language})\n{how}\n"
        f"add_executable(device {source})\ntarget_link_libraries(device earshot::xiaozhi)\n",
        encoding="utf-8",
    )
    _cmake("-S", folder, "-B", folder / "build", *options)
    _cmake("--build", folder / "build")
    assert run([folder / "build" / "device"], check=False).returncode == 0


def test_cmake_builds_the_library_within_another_project(tmp_path: Path) -> None:
    _build_device(tmp_path / "device", f'add_subdirectory("{C}" library)', "C")


def test_cmake_installs_the_library_for_other_projects(tmp_path: Path) -> None:
    build, prefix = tmp_path / "build", tmp_path / "prefix"
    _cmake("-S", C, "-B", build)
    _cmake("--build", build)
    _cmake("--install", build, "--prefix", prefix)
    found = f"-DCMAKE_PREFIX_PATH={prefix}"
    _build_device(tmp_path / "device", "find_package(earshot_xiaozhi REQUIRED)", "CXX", found)
    (licence,) = prefix.rglob("LICENSE")
    assert licence.read_bytes() == (ROOT / "LICENSE").read_bytes()


def test_the_esp_idf_component_contains_the_licence() -> None:
    """A component registry shows the file that lies in the component's own folder."""
    assert (C / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
    assert "license: Apache-2.0" in (C / "idf_component.yml").read_text(encoding="utf-8")


def test_the_build_files_list_every_source() -> None:
    listed = re.findall(
        r"^  (src/\w+\.c)", (C / "CMakeLists.txt").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert listed == [str(path.relative_to(C)) for path in LIBRARY]
