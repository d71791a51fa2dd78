"""What servers that share one PostgreSQL tell each other: that a device was changed, so that one
blocked here is gone there too, at once (its NOTIFY and LISTEN). SQLite has one server, and none of
it."""

import asyncio
import logging
import secrets
from collections.abc import Callable
from contextlib import aclosing

from sqlalchemy import Connection, func, select

from devices.registry.database import Database, first_line

logger = logging.getLogger(__name__)

CHANNEL = "earshot_devices"

WAITS_S = (1.0, 2.0, 5.0, 10.0, 30.0)
"Before each further try to listen; the last one again and again."

_ALIVE = {"keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3}
"Who only listens would never notice a database whose machine lost its power: here after a minute."


class DeviceChangeChannel:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._own = secrets.token_hex(8)
        "Comes with our news, which are none to us."

    def tell(self, connection: Connection) -> None:
        """All other servers, when the transaction is done; nobody if it fails."""
        if connection.dialect.name == "postgresql":
            connection.execute(select(func.pg_notify(CHANNEL, self._own)))

    async def follow(self, heard: Callable[[], None]) -> None:
        """Until cancelled; returns where nothing can be heard. `heard` is called at each change of
        another server, and after each connection: some may have been missed."""
        driver = self._database.driver
        if not driver.startswith("postgresql"):
            return
        if driver != "postgresql+psycopg":
            logger.warning("! devices: other servers' changes are not heard over %s", driver)
            return
        from psycopg import AsyncConnection, Error  # an extra of the installation

        listed, named = self._database.how_to_connect()
        failures = 0
        while True:
            try:
                async with await AsyncConnection.connect(
                    *listed, autocommit=True, **{**named, **_ALIVE}
                ) as connection:
                    await connection.execute(f"LISTEN {CHANNEL}")
                    logger.info("= devices: other servers' changes are heard")
                    failures = 0
                    heard()
                    async with aclosing(connection.notifies()) as notices:
                        async for notice in notices:
                            if notice.payload != self._own:
                                heard()
            except (Error, OSError) as error:
                if not failures:
                    why = first_line(error)
                    logger.warning("! devices: other servers' changes are not heard: %s", why)
            await asyncio.sleep(WAITS_S[min(failures, len(WAITS_S) - 1)])
            failures += 1
