"""The table `[devices]`: automatic approval, and secrets that are never shown."""

from pathlib import Path

import pytest

from core.errors import ConfigError
from server.config.load import load
from server.config.show import show

PASSWORD = "hunter2"


@pytest.mark.parametrize(
    ("settings", "approved"),
    [
        ({}, {"127.0.0.1", "::1"}),
        ({"EARSHOT_DEVICES__NETWORKS": "10.0.0.0/8"}, {"127.0.0.1", "::1"}),
        ({"EARSHOT_DEVICES__APPROVAL": "networks"}, {"127.0.0.1", "::1", "10.1.1.1", "fd00::1"}),
        (
            {"EARSHOT_DEVICES__APPROVAL": "networks", "EARSHOT_DEVICES__NETWORKS": "1.2.3.0/24"},
            {"127.0.0.1", "::1", "1.2.3.4"},
        ),
        # A proxy may be what comes from this machine.
        ({"EARSHOT_REQUIRE_KEY": "true"}, set()),
        ({"EARSHOT_API_KEY": "k" * 16}, set()),
        ({"EARSHOT_ALLOWED_HOSTS": "voice.example"}, set()),
        ({"EARSHOT_HOST": "0.0.0.0"}, set()),
        ({"EARSHOT_HOST": "localhost"}, {"127.0.0.1", "::1"}),
        (
            {"EARSHOT_REQUIRE_KEY": "1", "EARSHOT_DEVICES__APPROVAL": "networks"},
            {"10.1.1.1", "fd00::1"},
        ),
    ],
)
def test_only_this_machine_is_approved_automatically_by_default(
    settings: dict[str, str], approved: set[str]
) -> None:
    config = load(settings).config
    trusts = config.server.trusts_this_machine
    rule = config.devices.as_settings(trusts_this_machine=trusts).rule
    asked = ("127.0.0.1", "::1", "10.1.1.1", "fd00::1", "1.2.3.4", "")
    assert {one for one in asked if rule.approves(one)} == approved


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("NETWORKS", "home", r"devices\.networks"),
        ("APPROVAL", "never", "'ask', 'networks'"),
        ("TOKEN_DAYS", "0", r"\[1, 3650\]"),
    ],
)
def test_a_wrong_setting_is_named(name: str, value: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        load({f"EARSHOT_DEVICES__{name}": value})


def test_the_password_of_a_database_is_not_shown(tmp_path: Path) -> None:
    url = f"postgresql://me:{PASSWORD}@db.example/earshot"
    effective = load({"EARSHOT_DEVICES__DATABASE": url})
    assert effective.config.devices.database == url
    for shown in (show(effective), repr(effective.config)):
        assert PASSWORD not in shown
        assert "postgresql://me:********@db.example/earshot" in shown
