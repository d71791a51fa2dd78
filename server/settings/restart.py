"""HTTP route that starts the server again, so that saved settings hold."""

import asyncio
import logging
from collections.abc import Callable, Collection

import msgspec
from aiohttp import web as aioweb

from core.access.named_key import CALLER_KEY
from core.errors import ConfigError, Conflict
from core.http.routes import JSON, Route
from server.settings.file import SettingsFile
from server.settings.start_check import start_problems

logger = logging.getLogger(__name__)


class RestartBegun(msgspec.Struct, frozen=True):
    """The server finishes what it does, and starts again."""

    drain_timeout_s: float
    "Longest time in seconds that turns in progress get. New ones are refused meanwhile."


class RestartDoor:
    """Handler of the restart. The settings are checked first: a server that runs with the old ones
    is better than none."""

    def __init__(
        self,
        file: SettingsFile,
        restart: Callable[[], None],
        *,
        own_ports: Collection[int],
        drain_timeout_s: float,
    ) -> None:
        """`restart`: asks the server to drain and start again. `own_ports`: ports of this server.
        `drain_timeout_s`: time that running turns get, in seconds."""
        self._file, self._restart = file, restart
        self._own_ports, self._drain_timeout_s = own_ports, drain_timeout_s
        self._checking = asyncio.Lock()

    async def restart(self, _: aioweb.Request) -> aioweb.Response:
        """Raises Conflict cannot_restart or restart_busy."""
        if self._checking.locked():
            raise Conflict("a restart is under way", code="restart_busy")
        caller = CALLER_KEY.get()
        who = f"the key {caller.name!r}" if caller else "the owner"
        async with self._checking:
            problems = await asyncio.to_thread(self._problems)
        if problems:
            logger.warning("! %s asked for a restart, which is refused: %s", who, problems[0])
            why = "\n".join(problems)
            raise Conflict(
                f"the server goes on with its old settings: {why}", code="cannot_restart"
            )
        logger.info("= %s asked for a restart: draining", who)
        self._restart()
        return aioweb.Response(
            status=202,
            body=msgspec.json.encode(RestartBegun(self._drain_timeout_s)),
            content_type=JSON,
            headers={"Cache-Control": "no-store"},
        )

    def _problems(self) -> list[str]:
        try:
            config = self._file.load(self._file.read()[0]).config
        except ConfigError as error:
            return str(error).splitlines()
        return list(start_problems(config, self._own_ports))


def restart_routes(door: RestartDoor) -> tuple[Route, ...]:
    """Returns the route that starts the server again."""
    return (
        Route(
            "POST",
            "/v1/server/restart",
            door.restart,
            "Finish running turns and start the server again with the saved settings.",
            "settings",
            responses={202: RestartBegun},
            error_codes=("cannot_restart", "restart_busy"),
            scope="manage",
        ),
    )
