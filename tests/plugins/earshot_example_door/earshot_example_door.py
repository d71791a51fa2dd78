"""A door that answers a question over HTTP: `POST /ask` with `{"question": "..."}`."""

from collections.abc import Sequence

import msgspec
from aiohttp import web

from core.errors import RequestError
from core.http.routes import Route
from pipeline.session.one_shot import OneShotRequest
from web.plugin_doors import DoorServices


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The table `[doors.ask]`."""

    path: str = "/ask"


class Asked(msgspec.Struct, frozen=True):
    """Body of a request."""

    question: str


class Answered(msgspec.Struct, frozen=True):
    """Body of an answer."""

    answer: str


class AskDoor:
    """A `web.plugin_doors.PluginDoor`."""

    def __init__(self, settings: Settings, services: DoorServices) -> None:
        self._exchanges = services.exchanges
        self.routes: Sequence[Route] = (
            Route(
                "POST",
                settings.path,
                self.ask,
                "Ask the assistant one thing.",
                "ask",
                request=Asked,
                responses={200: Answered},
                error_codes=("invalid_request", "server_full"),
                scope="talk",
            ),
        )

    async def ask(self, request: web.Request) -> web.Response:
        """The assistant's answer, with the tools and the language model of the server."""
        try:
            asked = msgspec.json.decode(await request.read(), type=Asked)
        except msgspec.DecodeError as error:
            raise RequestError(f"the body: {error}") from error
        async with self._exchanges.open(OneShotRequest(asked.question)) as exchange:
            answer = Answered(await exchange.text())
        return web.Response(body=msgspec.json.encode(answer), content_type="application/json")


def create(settings: Settings, services: DoorServices) -> AskDoor:
    """Called once, when the engines are loaded."""
    return AskDoor(settings, services)
