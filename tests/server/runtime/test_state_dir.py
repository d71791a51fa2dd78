"""Key and certificate are private files, made once and renewed when they no longer fit."""

import os
import stat
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest

from core.errors import ConfigError
from core.private_files import make_private
from server.net.tls import LIFETIME, TlsContext, open_tls
from server.runtime.clock import open_trace
from server.runtime.state_dir import make_key, open_folder, read_key, restrict_access

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


def test_an_impossible_state_folder_is_a_configuration_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"config\.paths\.state_dir"):
        open_folder(str(tmp_path / "file" / "state"))


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_files_readable_by_others_are_tightened_with_a_warning(tmp_path: Path) -> None:
    folder = open_folder(str(tmp_path / "state"))
    make_key(folder)
    (folder / "tls.pem").touch(0o600)
    assert restrict_access(str(folder)) == []
    wide = {folder: 0o777, folder / "api-key": 0o644, folder / "tls.pem": 0o666}
    for path, mode in wide.items():
        path.chmod(mode)
    told = restrict_access(str(folder))
    for line, (path, mode) in zip(told, wide.items(), strict=True):
        assert line.startswith(f"{path} could be used by others (mode {mode:04o})")
    assert [mode_of(path) for path in wide] == [0o700, 0o600, 0o600]
    assert restrict_access(str(tmp_path / "none")) == []


def test_a_file_of_another_user_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = open_folder(str(tmp_path / "state"))
    make_key(folder)
    if os.geteuid() == 0:
        os.chown(folder / "api-key", 4242, -1)
    else:
        folder.chmod(0o700)
        monkeypatch.setattr(os, "geteuid", lambda: 4242)
    with pytest.raises(ConfigError, match=r"^config\.paths\.state_dir: .* belongs to another user"):
        restrict_access(str(folder))


def test_a_folder_of_root_is_accepted_unless_all_users_may_write(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 4242)
    with pytest.raises(ConfigError, match=r"^x: /etc/passwd belongs to root, and all users"):
        make_private(Path("/etc/passwd"), "x")
    assert make_private(Path("/etc/shadow"), "x") == ""


def test_a_path_whose_rights_cannot_be_changed_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "file"
    file.touch(0o644)
    monkeypatch.setattr(Path, "chmod", lambda *_: None)  # as on a file system without them
    with pytest.raises(ConfigError, match=r"^x: .*file is accessible to other users \(mode 0644\)"):
        make_private(file, "x")


@pytest.mark.parametrize("key", ["short", "x" * 15, "with a space in it", "x" * 257])
def test_a_weak_key_is_refused(key: str, tmp_path: Path) -> None:
    (tmp_path / "api-key").write_text(f"{key}\n")
    with pytest.raises(ConfigError, match="16 to 256") as caught:
        read_key(str(tmp_path))
    assert str(tmp_path / "api-key") in str(caught.value)
    assert key not in str(caught.value)


def test_a_trace_readable_by_others_is_tightened(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trace = tmp_path / "trace.jsonl"
    trace.touch()
    trace.chmod(0o644)
    with open_trace(str(trace)) as out:
        assert out is not None
    assert mode_of(trace) == 0o600
    assert f"{trace} could be used by others (mode 0644)" in caplog.text
    with open_trace("/dev/null") as out:  # no file: its rights are not ours
        assert out is not None
    assert mode_of(Path("/dev/null")) == 0o666


def tls(
    folder: Path, setting: str = "auto", *, now: datetime = NOW, names: str = "box"
) -> TlsContext:
    opened = open_tls(setting, folder, [names, "x" * 65, "bücher"], [LAN], now)
    assert opened is not None
    return opened


def test_a_certificate_is_kept_until_it_no_longer_fits(tmp_path: Path) -> None:
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
