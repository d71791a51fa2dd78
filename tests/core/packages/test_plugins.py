"""Entry points of other packages: which of them are found, and which names are refused."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from core.errors import ConfigError
from core.packages.plugins import find_plugins, missing_members
from core.ports import Clock
from tests.plugins.packages import declare, searched


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on the import path, in which a test declares packages."""
    with searched(tmp_path, monkeypatch) as folder:
        yield folder


def test_entry_points_of_other_groups_are_ignored(site: Path) -> None:
    groups = {"console_scripts": {"acme": "acme:main"}, "earshot.tools": {"bins": "acme.bins"}}
    declare(site, "acme-house", groups, version="2.1")
    (plugin,) = find_plugins("earshot.tools").values()
    assert (plugin.name, plugin.target, plugin.origin) == ("bins", "acme.bins", "acme-house 2.1")
    assert find_plugins("earshot.doors") == {}


def test_the_first_of_two_versions_on_the_path_is_used(
    site: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    declare(site, "acme", {"earshot.tools": {"bins": "acme.bins"}}, version="1.0")
    first = tmp_path_factory.mktemp("first")
    declare(first, "acme", {"earshot.tools": {"bins": "acme.bins"}}, version="1.1")
    monkeypatch.syspath_prepend(first)
    assert find_plugins("earshot.tools")["bins"].origin == "acme 1.1"


def test_the_name_of_a_built_in_plugin_is_refused(site: Path) -> None:
    declare(site, "acme", {"earshot.doors": {"whip": "acme.whip"}})
    plugin = find_plugins("earshot.doors", built_in=("whip",))["whip"]
    with pytest.raises(ConfigError, match="'whip' is built in: the package has to rename it"):
        plugin.load()


def test_a_name_declared_by_two_packages_is_refused(site: Path) -> None:
    for package in ("zeta", "acme"):
        declare(site, package, {"earshot.tools": {"bins": f"{package}.bins"}})
    with pytest.raises(ConfigError, match=r"acme 1\.0 and zeta 1\.0 both add 'bins': uninstall"):
        find_plugins("earshot.tools")["bins"].load()


@pytest.mark.parametrize("name", ["Bins", "my-bins", "b" * 33, "1st"])
def test_a_name_that_cannot_be_a_setting_is_refused(name: str, site: Path) -> None:
    declare(site, "acme", {"earshot.tools": {name: "acme.bins"}})
    with pytest.raises(ConfigError, match=f"'{name}' is no name: small letters"):
        find_plugins("earshot.tools")[name].load()


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("import nosuchlibrary", "ModuleNotFoundError: No module named 'nosuchlibrary'"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("raise SystemExit('stop')", "SystemExit: stop"),
        ("def broken(", "SyntaxError: "),
        ("", "AttributeError: module 'acme_broken' has no attribute 'door'"),
    ],
)
def test_any_error_of_an_import_becomes_a_config_error(
    source: str, message: str, site: Path
) -> None:
    (site / "acme_broken.py").write_text(source)
    declare(site, "acme", {"earshot.doors": {"ask": "acme_broken:door"}})
    with pytest.raises(ConfigError, match=f"acme_broken:door cannot be imported: {message}"):
        find_plugins("earshot.doors")["ask"].load()


def test_unreadable_metadata_disables_only_its_own_package(
    site: Path, caplog: pytest.LogCaptureFixture
) -> None:
    declare(site, "acme", {"earshot.tools": {"bins": "acme.bins"}})
    declare(site, "other", {"earshot.tools": {"bulbs": "other.bulbs"}})
    (site / "acme-1.0.dist-info" / "entry_points.txt").write_text("[earshot.tools]\nno equals\n")
    assert list(find_plugins("earshot.tools")) == ["bulbs"]
    assert "the metadata of a package cannot be read" in caplog.text


def test_missing_members_of_a_protocol_are_named() -> None:
    class Stopped:
        def now(self) -> float:
            return 0.0

    assert missing_members(Stopped(), Clock) == ["wall"]
