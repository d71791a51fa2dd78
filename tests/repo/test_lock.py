"""requirements.lock pins everything, so that an installation is the same everywhere."""

import json
import re
import tomllib
from collections.abc import Iterator
from itertools import product

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from server.commands.lock_file import locked_names, main, requirements
from tests.shared import ROOT

pytestmark = pytest.mark.live

TEXT = (ROOT / "requirements.lock").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
FREE = {"pocket", "scale", "torch"}
"Extras that are not locked."
MACHINES = [
    {
        "python_version": python,
        "python_full_version": f"{python}.0",
        "platform_machine": machine,
        "sys_platform": "linux",
        "platform_system": "Linux",
        "os_name": "posix",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
        "extra": "",
    }
    for python, machine in product(("3.11", "3.12", "3.13", "3.14"), ("x86_64", "aarch64"))
]


def _entries() -> Iterator[tuple[Requirement, list[str]]]:
    """Returns each pin with its hashes."""
    for entry in re.split(r"\n(?=\S)", TEXT.strip()):
        pin, *options = entry.replace("\\\n", " ").split("--hash=")
        yield Requirement(pin), [option.strip() for option in options]


ENTRIES = list(_entries())


def test_every_entry_is_one_release_with_hashes() -> None:
    assert len(ENTRIES) > 60
    for pin, hashes in ENTRIES:
        assert re.fullmatch(r"==[0-9a-zA-Z.]+", str(pin.specifier)), pin
        assert hashes, pin
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", one) for one in hashes), pin


def test_the_lock_names_no_package_index() -> None:
    assert not re.search(r"://| @ |--(?!hash=)|^-", TEXT, re.MULTILINE)


def _pinned(machine: dict[str, str]) -> dict[str, str]:
    """Maps each package to its release, as pip sees it there; a package is pinned once."""
    found: dict[str, str] = {}
    for pin, _ in ENTRIES:
        if pin.marker is None or pin.marker.evaluate(machine):
            name = canonicalize_name(pin.name)
            assert name not in found, pin
            found[name] = next(iter(pin.specifier)).version
    return found


@pytest.mark.parametrize(
    "machine", MACHINES, ids=lambda one: f"{one['python_version']}-{one['platform_machine']}"
)
def test_the_lock_satisfies_the_ranges_of_the_project(machine: dict[str, str]) -> None:
    pinned = _pinned(machine)
    extras = PROJECT["optional-dependencies"]
    wanted = [*PROJECT["dependencies"], "pip", "setuptools"]
    wanted += [line for extra in extras.keys() - FREE for line in extras[extra]]
    for line in wanted:
        requirement = Requirement(line)
        if requirement.marker is None or requirement.marker.evaluate(machine):
            assert requirement.specifier.contains(pinned[canonicalize_name(requirement.name)]), line


def test_an_installation_requests_each_package_once() -> None:
    extras = sorted(PROJECT["optional-dependencies"])
    locked, free = (requirements(extras, is_locked=is_locked) for is_locked in (True, False))
    assert not set(locked) & set(free)
    assert {*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["dev"]} <= set(locked)
    assert not {line for line in locked if line.startswith(("torch ", "ray"))}
    assert "torch" not in locked_names()


def test_an_unknown_extra_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["locked", "mpc"]) == 2
    assert capsys.readouterr().err == "earshot install: there is no extra 'mpc'\n"


def test_the_npm_lock_names_no_registry() -> None:
    lock = json.loads((ROOT / "scripts/javascript/package-lock.json").read_text(encoding="utf-8"))
    packages = [package for path, package in lock["packages"].items() if path]
    assert packages
    for package in packages:
        assert "resolved" not in package, "scripts/javascript/.npmrc leaves addresses out"
        assert package["integrity"].startswith("sha512-")
