"""Messages between servers that share one PostgreSQL: "devices were changed".

So a device that is blocked on one server is disconnected at once on the others too. They use
PostgreSQL's NOTIFY and LISTEN. An SQLite database has only one server, so nothing is sent. If that
runs several gateways, each looks every second whether another one has written.
"""

import asyncio
import logging
import secrets
from collections.abc import Callable
from contextlib import aclosing, suppress

from sqlalchemy import Connection, func, select

from core.errors import StorageError
from devices.registry.database import Database, first_line

logger = logging.getLogger(__name__)

CHANNEL = "earshot_devices"

WAITS_S = (1.0, 2.0, 5.0, 10.0, 30.0)
"Waits before each further attempt to listen, in seconds; the last one is repeated."

SQLITE_INTERVAL_S = 1.0
"""Interval at which a gateway looks for changes by others, in seconds: a key that was revoked at
another gateway opens something for at most as long."""

_ALIVE = {"keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3}
"""TCP keepalive: a connection that only listens would not notice that the database's machine lost
its power. With keepalive it notices this within a minute."""


class DeviceChangeChannel:
    """Sends and receives the messages of one server."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._own = secrets.token_hex(8)
        "Payload of this server's messages, so that it can ignore its own."

    def notify_others(self, connection: Connection) -> None:
        """Notifies all other servers when the transaction is committed; nothing is sent if it
        fails."""
        if connection.dialect.name == "postgresql":
            connection.execute(select(func.pg_notify(CHANNEL, self._own)))

    async def receive(self, on_change: Callable[[], None]) -> None:
        """Receives messages until cancelled; returns at once if the database or its driver cannot
        send any.

        on_change: called at each change by another server, and after each connect, because messages
            may have been missed.
        """
        driver = self._database.driver
        if driver.startswith("sqlite") and self._database.is_shared:
            await self._watch_sqlite(on_change)
        if not driver.startswith("postgresql"):
            return
        if driver != "postgresql+psycopg":
            logger.warning("! devices: changes by other servers are not received over %s", driver)
            return
        from psycopg import AsyncConnection, Error  # an extra of the installation

        listed, named = self._database.connect_arguments()
        failures = 0
        while True:
            try:
                async with await AsyncConnection.connect(
                    *listed, autocommit=True, **{**named, **_ALIVE}
                ) as connection:
                    await connection.execute(f"LISTEN {CHANNEL}")
                    logger.info("= devices: changes by other servers are received")
                    failures = 0
                    on_change()
                    async with aclosing(connection.notifies()) as notices:
                        async for notice in notices:
                            if notice.payload != self._own:
                                on_change()
            except (Error, OSError) as error:
                if not failures:
                    why = first_line(error)
                    logger.warning("! devices: changes by other servers are not received: %s", why)
            await asyncio.sleep(WAITS_S[min(failures, len(WAITS_S) - 1)])
            failures += 1

    async def _watch_sqlite(self, on_change: Callable[[], None]) -> None:
        """Looks for changes by other processes until cancelled."""
        known: int | None = None
        while True:
            with suppress(StorageError):
                version = await self._database.sqlite_version()
                if version != known:
                    known = version
                    on_change()
            await asyncio.sleep(SQLITE_INTERVAL_S)
