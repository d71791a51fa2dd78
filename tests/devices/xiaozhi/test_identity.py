"""A reset board, and another client with its MAC, over the real registry: neither is served as the
approved board."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import WSServerHandshakeError
from sqlalchemy import text

from devices.fleet.pairing import ApprovalRule, RegistrySettings
from devices.registry.database import open_database
from devices.registry.registry import DeviceRegistry
from tests.devices.registry.harness import Moment
from tests.devices.xiaozhi.servers import Scene, Server, running
from tests.devices.xiaozhi.simulated_board import Board

pytestmark = pytest.mark.live

NEW_FLASH = "77777777-7777-4777-8777-777777777777"


class Nobody(ApprovalRule):
    """Trusts no network, not even this machine, where every board of a test is."""

    def approves(self, address: str) -> bool:
        return False


Act = Callable[[Server, DeviceRegistry], Awaitable[Any]]


def with_registry(folder: Path, act: Act) -> None:
    async def main() -> None:
        url = f"sqlite:///{folder}/devices.db"
        async with asyncio.timeout(30), open_database(url) as database:
            registry = DeviceRegistry(database, Moment(), RegistrySettings(rule=Nobody()))
            async with running(Scene(directory=registry)) as server:
                await act(server, registry)

    asyncio.run(main())


async def paired(server: Server, registry: DeviceRegistry, **values: Any) -> Board:
    board = server.board(**values)
    _, told = await board.check_in()
    await registry.pair(told["activation"]["code"])
    await board.boot()
    return board


def test_a_reset_board_needs_approval_again(tmp_path: Path) -> None:
    async def act(server: Server, registry: DeviceRegistry) -> None:
        board = await paired(server, registry)
        reset = server.board(client_id=NEW_FLASH)
        status, told = await reset.check_in()
        assert status == 200
        assert set(told) == {"server_time", "firmware", "activation", "websocket"}
        path, headers = "/xiaozhi/ota/activate", reset.headers()
        async with server.client.post(path, data=b"{}", headers=headers) as answer:
            assert answer.status == 202
        (device,) = await registry.all_devices()
        assert device.has_new_identity
        await registry.pair(told["activation"]["code"])
        async with server.client.post(path, data=b"{}", headers=headers) as answer:
            assert answer.status == 200
        async with server.client.post(path, data=b"{}", headers=board.headers()) as answer:
            assert answer.status == 202
        await reset.boot()
        await reset.open()
        assert await reset.turn("one") == ("one", ["you said one."])
        with pytest.raises(WSServerHandshakeError) as caught:
            await board.open()
        assert caught.value.status == 401
        await reset.hang_up()

    with_registry(tmp_path, act)


@pytest.mark.parametrize("client_id", [NEW_FLASH, ""])
def test_a_stolen_key_is_revoked_and_the_board_continues(
    tmp_path: Path, client_id: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)

    async def act(server: Server, registry: DeviceRegistry) -> None:
        board = await paired(server, registry)
        await board.open()
        thief = Board(server.client, client_id=client_id, flash_of=board)
        with pytest.raises(WSServerHandshakeError) as caught:
            await thief.open()
        assert caught.value.status == 401
        _, told = await thief.check_in()
        assert set(told) == {"server_time", "firmware", "activation", "websocket"}
        await thief.open(listens=False)
        assert len((await thief.text("alert"))["message"]) == 6, "it may only show its code"
        await thief.hang_up()
        assert await board.turn("two") == ("two", ["you said two."])
        await board.hang_up()
        assert board.flash["token"] not in caplog.text
        assert board.client_id not in caplog.text

    with_registry(tmp_path, act)


def test_the_client_id_itself_is_not_stored(tmp_path: Path) -> None:
    async def act(server: Server, registry: DeviceRegistry) -> None:
        board = await paired(server, registry)
        kept = await registry._database.run(
            lambda one: one.execute(text("SELECT * FROM devices")).all()
        )
        assert board.client_id not in repr(kept)
        assert board.client_id.encode() not in (tmp_path / "devices.db").read_bytes()

    with_registry(tmp_path, act)
