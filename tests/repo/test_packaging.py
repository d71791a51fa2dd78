"""The wheel: its content, and top-level packages that no other distribution claims."""

import hashlib
import sys
from importlib.metadata import metadata, packages_distributions
from importlib.util import find_spec
from pathlib import Path
from subprocess import run
from zipfile import ZipFile

import pytest

from server.version import DISTRIBUTION
from tests.repo.files import PACKAGES, repository_files
from tests.shared import ROOT

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("checkout")]

APACHE_2 = "c71d239df91726fc519c6eb72d318ec65820627232b2f796219e87dcf35d0ab4"


@pytest.mark.parametrize("package", PACKAGES)
def test_each_top_level_name_resolves_to_our_file(package: str) -> None:
    spec = find_spec(package)
    assert spec is not None
    assert spec.origin == str(ROOT / package / "__init__.py")


@pytest.mark.parametrize("package", PACKAGES)
def test_no_other_distribution_claims_a_top_level_name(package: str) -> None:
    assert set(packages_distributions().get(package, [])) <= {DISTRIBUTION}


def test_names_resolve_from_any_folder(tmp_path: Path) -> None:
    code = f"for name in {PACKAGES!r}: print(__import__(name).__file__)"
    done = run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    expected = [str(ROOT / package / "__init__.py") for package in PACKAGES]
    assert done.stdout.split() == expected


@pytest.fixture(scope="module")
def wheel_names(wheel: Path) -> set[str]:
    with ZipFile(wheel) as archive:
        return set(archive.namelist())


NOT_SHIPPED = (
    "firmware_protocol/c/",
    "firmware_protocol/vectors/",
    "bench/capacity/",
    "bench/gpu/",
    "bench/measurements/",
    "bench/peers/",
    "bench/simulate/",
)
"The C client is built from its folder; comparisons with other systems need the checkout."


def test_wheel_holds_every_file_of_our_packages(wheel_names: set[str]) -> None:
    expected = {str(path) for path in repository_files() if path.parts[0] in PACKAGES}
    assert {name for name in expected if not name.startswith(NOT_SHIPPED)} <= wheel_names
    assert not [name for name in wheel_names if name.startswith(NOT_SHIPPED)]
    assert any(name.startswith("server/") for name in wheel_names)


def test_wheel_holds_nothing_else(wheel_names: set[str]) -> None:
    tops = {name.split("/")[0] for name in wheel_names}
    info = {top for top in tops if top.endswith(".dist-info")}
    assert tops - info == set(PACKAGES)
    assert len(info) == 1
    assert f"{info.pop()}/licenses/LICENSE" in wheel_names


def test_licence_is_apache_2() -> None:
    assert hashlib.sha256((ROOT / "LICENSE").read_bytes()).hexdigest() == APACHE_2
    assert metadata(DISTRIBUTION)["License-Expression"] == "Apache-2.0"


def test_base_install_needs_no_torch() -> None:
    required = metadata(DISTRIBUTION).get_all("Requires-Dist") or []
    base = {line.split()[0].split(";")[0].lower() for line in required if "extra ==" not in line}
    assert base
    assert not [name for name in base if name.startswith(("torch", "nvidia", "transformers"))]
