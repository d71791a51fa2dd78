"""Kept conversations are in a backup: whose they are, their tool calls, and that they can be
deleted afterwards."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import func, select

from core.access.named_key import CALLER_KEY, NamedKey
from devices.registry.database import open_database, sqlite_url
from devices.registry.kept_conversations import KeptConversations, KeptToolCall, KeptTurn
from devices.registry.named_keys import NamedKeys
from devices.registry.tables import kept_turns
from server.__main__ import main
from server.runtime.clock import SystemClock
from tests.devices.registry.postgres import postgres

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("postgres")]

CALL = KeptToolCall("HassTurnOn", '{"area": "kitchen"}', '{"targets": []}')
MINE = KeptTurn("item_1", "turn on the kitchen lights", "Turned on the kitchen lights.", (CALL,))
HERS = KeptTurn("item_1", "what time is it", "It is noon.")


@contextmanager
def caller(key: NamedKey) -> Iterator[None]:
    token = CALLER_KEY.set(key)
    try:
        yield
    finally:
        CALLER_KEY.reset(token)


async def keep_two(url: str) -> str:
    """Keeps a conversation of the owner, and one of Anna under the same id. Returns Anna's key."""
    async with open_database(url) as database:
        kept = KeptConversations(database, SystemClock(), 30)
        added, token = await NamedKeys(database, SystemClock()).add("anna", ["talk"])
        await kept.begin("one")
        await kept.add("one", [MINE])
        with caller(added.key):
            await kept.begin("one")
            await kept.add("one", [HERS])
        return token


async def check_restored(url: str, token: str) -> None:
    """Reads both conversations, each with its key, and deletes one."""
    async with open_database(url) as database:
        kept = KeptConversations(database, SystemClock(), 30)
        keys = NamedKeys(database, SystemClock())
        await keys.load()
        anna = keys.find(token)
        assert anna is not None
        with caller(anna):
            assert await kept.read("one") == [HERS]
            assert await kept.delete_all() == ["one"]
        assert await kept.read("one") == [MINE]
        count = select(func.count()).select_from(kept_turns)
        assert await database.run(lambda connection: connection.execute(count).scalar_one()) == 1


def test_kept_conversations_are_restored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = tmp_path / "home.tar.gz"

    def use(name: str) -> str:
        home = tmp_path / name
        (home / "earshot").mkdir(parents=True)
        monkeypatch.chdir(home)
        monkeypatch.setenv("XDG_STATE_HOME", str(home))
        return sqlite_url(home / "earshot" / "devices.db")

    token = asyncio.run(keep_two(use("old")))
    assert main(["backup", str(archive)]) == 0
    restored = use("new")
    assert main(["restore", str(archive)]) == 0
    asyncio.run(check_restored(restored, token))


@pytest.mark.real
def test_kept_conversations_of_postgresql_are_restored_with_its_own_tools(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    (tmp_path / "earshot.toml").write_text("[history]\ndays = 30\n")
    with postgres() as server:
        url = server.create()
        monkeypatch.setenv("EARSHOT_DEVICES__DATABASE", url)
        token = asyncio.run(keep_two(url))
        assert main(["backup", "home.tar.gz", "--json"]) == 0
        assert "pg_dump and pg_restore" in " ".join(json.loads(capsys.readouterr().out)["notes"])
        asyncio.run(check_restored(server.restored_copy(url), token))
