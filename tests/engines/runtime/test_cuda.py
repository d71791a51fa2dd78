"""NVIDIA's libraries are found in the folders of their wheels, and named if they are missing."""

import ctypes
import ctypes.util
import shutil
import sys
from pathlib import Path

import pytest

from engines.runtime import cuda
from tests.conftest import require


def _library() -> Path:
    """Returns some shared library of this machine, used in place of NVIDIA's."""
    import _ctypes

    file = Path(_ctypes.__file__)
    require(file.suffix == ".so", "a shared library to copy")
    return file


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Returns an environment with an empty `nvidia` namespace, as pip makes it."""
    (tmp_path / "nvidia" / "cublas" / "lib").mkdir(parents=True)
    (tmp_path / "nvidia" / "cudnn" / "lib").mkdir(parents=True)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    for name in [name for name in sys.modules if name.partition(".")[0] == "nvidia"]:
        monkeypatch.delitem(sys.modules, name)
    return tmp_path / "nvidia"


def test_the_folders_of_the_wheels_are_found(wheels: Path) -> None:
    assert list(cuda.wheel_folders()) == [wheels / "cublas" / "lib", wheels / "cudnn" / "lib"]


def test_libraries_of_the_wheels_are_loaded_globally(
    wheels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in cuda.NEEDED:
        shutil.copy(_library(), wheels / "cublas" / "lib" / name)
    loaded: list[tuple[str, int]] = []
    real = ctypes.CDLL

    def load(file: str, mode: int) -> ctypes.CDLL:
        loaded.append((file, mode))
        return real(file, mode)

    monkeypatch.setattr(ctypes, "CDLL", load)
    assert cuda.missing_libraries() == ()
    assert cuda.preload() == ()
    folder = wheels / "cublas" / "lib"
    assert loaded[:2] == [(str(folder / name), ctypes.RTLD_GLOBAL) for name in cuda.NEEDED]


def test_missing_libraries_are_named(tmp_path: Path) -> None:
    empty = [tmp_path]
    absent = ["libcublasLt.so.12", "libcublas.so.12"]
    assert list(cuda.missing_libraries(empty, lambda _: None)) == absent
    assert list(cuda.missing_libraries(empty, lambda name: f"lib{name}.so.11")) == absent
    assert cuda.missing_libraries(empty, lambda name: f"lib{name}.so.12") == ()
    (tmp_path / "libcublas.so.12").write_bytes(b"no library")
    assert cuda.missing_libraries(empty, lambda _: None) == ("libcublasLt.so.12",)
    assert "make install EXTRAS=gpu" in cuda.install_hint(absent)


def test_a_broken_library_counts_as_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "libcublas.so.12").write_bytes(b"no library")
    monkeypatch.setattr(cuda, "NEEDED", ("libcublas.so.12",))

    def refuse(file: str, mode: int) -> None:
        raise OSError(f"{file}: invalid ELF header ({mode})")

    monkeypatch.setattr(ctypes, "CDLL", refuse)
    assert cuda.preload([tmp_path]) == ("libcublas.so.12",)
