"""`earshot backup` and `earshot restore`: the devices, settings and keys come back."""

import asyncio
import json
import stat
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from devices.fleet.directory import SessionProfile
from devices.registry.database import open_database, sqlite_url
from devices.registry.named_keys import NamedKeys
from devices.registry.settings import DatabaseSettingsStore
from server.__main__ import main
from server.commands.backup.command import _give_to_owner
from server.commands.exit_codes import ExitCode
from server.config.load import load
from server.runtime.clock import SystemClock
from server.runtime.state_dir import make_key, open_folder, read_key
from tests.devices.api.scenes import scene

pytestmark = pytest.mark.live

CONFIG = """language = "de"  # a remark
[server]
tls = "{0}/site.pem:{0}/site.key"
"""
DATABASE = "devices.db"


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _use(tmp_path / "old", monkeypatch)


def _use(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Makes a folder the working folder and the home of the state. Returns the state folder."""
    home.mkdir(exist_ok=True)
    monkeypatch.chdir(home)
    monkeypatch.setenv("XDG_STATE_HOME", str(home))
    return home / "earshot"


async def _add_device(folder: Path) -> None:
    """Adds a device named Lamp and one stored setting."""
    async with scene(folder) as here:
        device = await here.new()
        await here.registry.edit(device.id, name="Lamp")
    async with open_database(sqlite_url(folder / DATABASE)) as database:
        await DatabaseSettingsStore(database).write("color", ["red"])


def _old_state(tmp_path: Path) -> str:
    """Makes a configuration and a state. Returns the key."""
    old = tmp_path / "old"
    (old / "earshot.toml").write_text(CONFIG.format(tmp_path))
    for name in ("site.pem", "site.key"):
        (tmp_path / name).write_text(name)
    folder = open_folder(str(old / "earshot"))
    asyncio.run(_add_device(folder))
    return make_key(folder)


async def _add_named_key(folder: Path) -> str:
    async with open_database(sqlite_url(folder / DATABASE)) as database:
        keys = NamedKeys(database, SystemClock())
        _, token = await keys.add("anna", ["talk"], profile=SessionProfile(voice="low"))
        return token


async def _knows_named_key(folder: Path, token: str) -> bool:
    async with open_database(sqlite_url(folder / DATABASE)) as database:
        keys = NamedKeys(database, SystemClock())
        await keys.load()
        key = keys.find(token)
        return key is not None and keys.profile_of(key).voice == "low"


async def _content(folder: Path) -> tuple[Sequence[str], Any]:
    """Returns the names of the devices and the stored setting."""
    async with scene(folder) as here:
        names = [device.name for device in await here.registry.all_devices()]
    async with open_database(sqlite_url(folder / DATABASE)) as database:
        return names, await DatabaseSettingsStore(database).read("color")


def test_a_restored_server_has_the_devices_settings_and_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    key = _old_state(tmp_path)
    named_key = asyncio.run(_add_named_key(tmp_path / "old" / "earshot"))
    archive = tmp_path / "home.tar.gz"

    async def save_while_a_server_runs() -> int:
        async with scene(tmp_path / "old" / "earshot"):
            return await asyncio.to_thread(main, ["backup", str(archive)])

    assert asyncio.run(save_while_a_server_runs()) == 0
    assert stat.S_IMODE(archive.stat().st_mode) == 0o600
    out = capsys.readouterr().out
    assert "Whoever has it can use your server." in out
    assert key not in out
    state = _use(tmp_path / "new", monkeypatch)
    assert main(["restore", str(archive)]) == 0
    assert asyncio.run(_content(state)) == (["Lamp"], ["red"])
    assert read_key(str(state)) == key
    assert asyncio.run(_knows_named_key(state, named_key))
    assert (tmp_path / "new" / "earshot.toml").read_text() == CONFIG.format(tmp_path)
    assert load({}).config.language == "de"
    assert (state / "certificate-key.pem").read_text() == "site.key"
    assert f'tls = "{state}/certificate.pem:{state}/certificate-key.pem"' in capsys.readouterr().err
    assert {stat.S_IMODE(file.stat().st_mode) for file in state.iterdir()} == {0o600}


def test_restore_replaces_a_state_only_if_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _old_state(tmp_path)
    state = tmp_path / "old" / "earshot"
    assert main(["backup", "home.tar.gz", "--json"]) == 0
    assert set(json.loads(capsys.readouterr().out)["files"]) == {
        *("earshot.toml", "api-key", "certificate.pem", "certificate-key.pem", DATABASE)
    }
    assert main(["backup", "home.tar.gz"]) == ExitCode.CANNOT_RUN
    assert "exists already" in capsys.readouterr().err
    (state / DATABASE).write_bytes(b"no database")
    assert main(["restore", "home.tar.gz"]) == ExitCode.CANNOT_RUN
    said = capsys.readouterr().err
    assert "earshot.toml" in said
    assert "--force replaces them" in said
    assert (state / DATABASE).read_bytes() == b"no database"
    assert main(["restore", "home.tar.gz", "--force", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["files"][DATABASE] == str(state / DATABASE)
    assert asyncio.run(_content(state)) == (["Lamp"], ["red"])


def test_restore_refuses_while_a_server_has_the_database_open(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _old_state(tmp_path)
    assert main(["backup", "home.tar.gz"]) == 0

    async def restore_beside_a_server() -> int:
        async with open_database(sqlite_url(tmp_path / "old" / "earshot" / DATABASE)):
            return await asyncio.to_thread(main, ["restore", "home.tar.gz", "--force"])

    assert asyncio.run(restore_beside_a_server()) == ExitCode.CANNOT_RUN
    assert "a server is running" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"no archive", "not a backup of Earshot"), (None, "home.tar.gz: No such file")],
)
def test_restore_writes_nothing_from_a_foreign_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes | None, words: str
) -> None:
    file = tmp_path / "home.tar.gz"
    if content is not None:
        file.write_bytes(content)
    assert main(["restore", str(file)]) == ExitCode.CANNOT_RUN
    assert words in capsys.readouterr().err
    assert list((tmp_path / "old").iterdir()) == []


def test_a_damaged_database_is_not_restored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _old_state(tmp_path)
    monkeypatch.setattr("server.commands.backup.command.copy_of", lambda file: b"SQLite format 3\0")
    assert main(["backup", "../home.tar.gz"]) == 0
    state = _use(tmp_path / "new", monkeypatch)
    assert main(["restore", "../home.tar.gz"]) == ExitCode.CANNOT_RUN
    assert "the database in the backup is damaged" in capsys.readouterr().err
    assert not state.exists()


def test_what_no_archive_holds_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _old_state(tmp_path)
    monkeypatch.setenv("EARSHOT_DEVICES__DATABASE", "postgresql://user:secret@host/earshot")
    assert main(["backup", "home.tar.gz", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert DATABASE not in shown["files"]
    assert [words in " ".join(shown["notes"]) for words in ("pg_dump", "secret")] == [True, False]
    assert "EARSHOT_DEVICES__DATABASE" in " ".join(shown["notes"])


@pytest.mark.parametrize(
    ("user", "owner", "given"), [(0, 990, [990]), (0, 0, []), (1000, 1000, [])]
)
def test_root_gives_restored_files_to_the_owner_of_the_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, user: int, owner: int, given: Sequence[int]
) -> None:
    asked: list[int] = []
    folder: Any = SimpleNamespace(stat=lambda: SimpleNamespace(st_uid=owner, st_gid=owner))
    monkeypatch.setattr("os.geteuid", lambda: user)
    monkeypatch.setattr("os.chown", lambda file, uid, gid: asked.append(uid))
    _give_to_owner(tmp_path / "api-key", folder)
    assert asked == given


def test_an_empty_state_is_not_saved(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["backup", "home.tar.gz"]) == ExitCode.CANNOT_RUN
    assert "there is nothing to save" in capsys.readouterr().err
    assert not Path("home.tar.gz").exists()
