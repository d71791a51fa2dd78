"""Two servers of one PostgreSQL change the same device at the same moment: what one of them read
still holds when it writes. SQLite's transactions exclude each other anyway."""

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from hashlib import sha256
from typing import Any

import psycopg
import pytest

from core.errors import NotFound
from devices.fleet.directory import Device, DeviceClaims
from devices.fleet.pairing import RegistrySettings
from devices.registry import queries, tokens
from tests.devices.registry.harness import Known, contact, known
from tests.devices.registry.postgres import Postgres

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("postgres")]

LIMIT_S = 30
OURS, OTHERS = (sha256(one).digest() for one in (b"ours", b"others"))
CODE_LIFE = timedelta(minutes=10)


def who(identity: bytes, address: str = "192.168.1.7") -> DeviceClaims:
    return replace(contact(address=address), identity=identity)


class Pause:
    """A pause between a server's read and its write."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.read, self.go_on = threading.Event(), threading.Event()

    def __call__(self) -> None:
        self.read.set()
        assert self.go_on.wait(LIMIT_S)

    async def until_read(self) -> None:
        assert await asyncio.to_thread(self.read.wait, LIMIT_S)

    async def until_somebody_waits(self, task: "asyncio.Task[Any]") -> None:
        """Waits until a connection waits for a lock, or until it is done."""
        while not (task.done() or await asyncio.to_thread(self._waits)):
            pass

    def _waits(self) -> bool:
        asked = (
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
        with psycopg.connect(self._url, autocommit=True) as connection:
            found = connection.execute(asked).fetchone()
        return bool(found and found[0])


@contextmanager
def held(here: Known, url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pause]:
    """Pauses a check-in at this server just before its write."""
    pause, brought = Pause(url), here.registry._changed_columns

    def slowly(*arguments: Any) -> dict[str, Any]:
        values = brought(*arguments)
        pause()
        return values

    with monkeypatch.context() as patch:
        patch.setattr(here.registry, "_changed_columns", slowly)
        yield pause
        pause.go_on.set()


async def both(
    pause: Pause, first: Coroutine[Any, Any, Device], second: Coroutine[Any, Any, Any]
) -> tuple[Device, Any]:
    """Starts `second` when `first` has read; an exception of `first` is its result."""
    begun = asyncio.create_task(first)
    await pause.until_read()
    after = asyncio.create_task(second)
    await pause.until_somebody_waits(after)
    pause.go_on.set()
    await asyncio.wait([after])
    return await begun, after.exception() or after.result()


def run(main: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(main, LIMIT_S))


def test_a_code_never_approves_an_identity_that_came_at_that_moment(
    server: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        url = server.create()
        async with known(url) as here, known(url) as there:
            new = await here.registry.check_in(who(OURS))
            there.clock.go_on(CODE_LIFE)
            with held(there, url, monkeypatch) as pause:
                coming = there.registry.check_in(who(OTHERS))
                other, refused = await both(pause, coming, here.registry.pair(new.pairing_code))
            assert isinstance(refused, NotFound)
            now = await here.registry.by_id(new.id)
            assert (now.standing, now.identity, other.standing) == ("new", OTHERS, "new")

    run(main())


def test_a_block_survives_a_concurrent_check_in(
    server: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        url = server.create()
        async with known(url) as here, known(url, RegistrySettings()) as there:
            new = await here.registry.check_in(who(OURS))
            with held(there, url, monkeypatch) as pause:
                coming = there.registry.check_in(who(OURS, "127.0.0.1"))
                _, blocked = await both(pause, coming, here.registry.block(new.id))
            assert blocked.standing == "blocked"
            assert (await here.registry.by_id(new.id)).standing == "blocked"

    run(main())


def test_no_key_is_issued_during_a_concurrent_block(
    server: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The key would be valid as soon as the device is approved again."""

    async def main() -> None:
        url = server.create()
        async with known(url) as here, known(url) as there:
            device = await here.registry.check_in(who(OURS))
            await here.registry.pair(device.pairing_code)
            pause, issued = Pause(url), []
            keep = tokens.store

            def slowly(connection: Any, token: str, *arguments: Any) -> None:
                issued.append(token)
                pause()
                keep(connection, token, *arguments)

            monkeypatch.setattr(tokens, "store", slowly)
            coming: Any = there.registry.issue_token(device.id)
            await both(pause, coming, here.registry.block(device.id))
            await here.registry.approve(device.id)
            assert await here.registry.device_with_key(issued[0], OURS) is None

    run(main())


def test_a_check_in_at_two_servers_at_once_makes_one_device(
    server: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        url = server.create()
        async with known(url) as here, known(url) as there:
            await here.registry.all_devices()
            with held(there, url, monkeypatch) as pause:
                coming = there.registry.check_in(who(OTHERS))
                first, second = await both(pause, coming, here.registry.check_in(who(OURS)))
            assert second.id == first.id
            (kept,) = await here.registry.all_devices()
            await here.registry.pair(kept.pairing_code)
            shown = first if first.pairing_code == kept.pairing_code else second
            found = await here.registry.by_id(kept.id)
            assert found.identity == (OTHERS if shown is first else OURS)

    run(main())


def test_a_device_under_approval_is_not_evicted(
    server: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "MAX_NEW", 1)

    async def main() -> None:
        url = server.create()
        async with known(url) as here, known(url, RegistrySettings()) as there:
            new = await here.registry.check_in(who(OURS))
            with held(there, url, monkeypatch) as pause:
                coming = there.registry.check_in(who(OURS, "127.0.0.1"))
                await both(pause, coming, here.registry.check_in(contact("aa:02")))
            assert (await here.registry.by_id(new.id)).standing == "approved"

    run(main())
