"""Key and certificate: private files, made once, renewed when they no longer fit."""

import stat
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest

from core.errors import ConfigError
from server.state import make_key, open_folder, read_key
from server.tls import LIFETIME, Tls, open_tls

NOW = datetime(2030, 1, 1, tzinfo=UTC)
LAN = ip_address("192.168.1.5")


def test_a_key_is_made_once_and_is_private(tmp_path: Path) -> None:
    folder = open_folder(str(tmp_path / "state"))
    assert read_key(str(folder)) is None
    key = make_key(folder)
    assert len(key) >= 43
    assert read_key(str(folder)) == key
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert [stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()] == [0o600]


def test_a_folder_that_cannot_be_is_a_configuration_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"config\.paths\.state_dir"):
        open_folder(str(tmp_path / "file" / "state"))


def tls(folder: Path, setting: str = "auto", *, now: datetime = NOW, names: str = "box") -> Tls:
    opened = open_tls(setting, folder, [names, "x" * 65, "bücher"], [LAN], now)
    assert opened is not None
    return opened


def test_a_certificate_lasts_until_it_no_longer_fits(tmp_path: Path) -> None:
    first = tls(tmp_path)
    assert stat.S_IMODE((tmp_path / "tls.pem").stat().st_mode) == 0o600
    assert first.fingerprint.count(":") == 31
    assert tls(tmp_path).fingerprint == first.fingerprint
    later = NOW + LIFETIME - timedelta(days=1)
    renewed = tls(tmp_path, now=later)
    assert renewed.fingerprint != first.fingerprint
    assert tls(tmp_path, now=later, names="moved").fingerprint != renewed.fingerprint
    (tmp_path / "tls.pem").write_text("garbage")
    assert tls(tmp_path, now=later).fingerprint.count(":") == 31


def test_tls_is_off_or_from_files(tmp_path: Path) -> None:
    assert open_tls("off", tmp_path, [], [], NOW) is None
    made = tls(tmp_path)
    pem = tmp_path / "tls.pem"
    assert tls(tmp_path, f"{pem}:{pem}").fingerprint == made.fingerprint
    with pytest.raises(ConfigError, match=r"config\.server\.tls: /no/cert:/no/key"):
        tls(tmp_path, "/no/cert:/no/key")
    (tmp_path / "bad.pem").write_text("not a certificate")
    with pytest.raises(ConfigError, match=r"config\.server\.tls"):
        tls(tmp_path, f"{tmp_path / 'bad.pem'}:{pem}")
