"""Decides which gateway answers a request. No I/O: `forward.py` asks, and `member.py` keeps the
table of gateways up to date."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256

from core.conversation.ids import gateway_of
from core.errors import OverloadedError
from server.gateways.channel import GatewayRow, Table

HOME_PATHS = (
    "/api/asr",
    "/api/chatbot",
    "/api/delete",
    "/api/pull",
    "/api/rtc",
    "/api/speaker",
    "/api/sts",
    "/api/willow",
    "/api/ws",
    "/earshot/home",
    "/mcp",
    "/v1/areas",
    "/v1/audio/voices",
    "/v1/devices",
    "/v1/keys",
    "/v1/models",
    "/v1/responses",
    "/v1/server",
    "/v1/settings",
    "/v1/speakers",
    "/v2",
    "/xiaozhi",
)
"""Paths that only the home gateway answers, with those below them: devices and what is said to
them, the home of the page, settings, keys, people, voices and models, responses that are kept for
the next request, KServe's sequences, MCP's sessions."""

CONVERSATION_PATH = "/v1/conversations/"
"Paths of one kept conversation."


@dataclass(frozen=True, slots=True)
class RoutedRequest:
    """Properties of a request by which its gateway is chosen."""

    path: str
    call_id: str = ""
    "Query parameter `call_id`: the call that a sideband connection wants."
    conversation_id: str = ""
    "Query parameter `conversation_id`."
    secret: str = ""
    "The client secret that the request carries."
    rated_key_id: str = ""
    "Id of its named key, if that key has a limit of requests within a minute."
    is_other_doors: bool = False
    "True: a door of another package answers it."


@dataclass(slots=True)
class Fleet:
    """All gateways, as one of them sees them."""

    own_number: int
    gateways: tuple[GatewayRow, ...] = ()
    is_started: bool = False
    "True once every slot has been ready."

    def update(self, table: Table) -> None:
        """Takes over the table of the parent."""
        self.gateways, self.is_started = table.gateways, table.is_started

    def lose(self, gateway: GatewayRow) -> None:
        """Notes that a gateway does not answer: it has ended, and the next table will say so."""
        self.gateways = tuple(row for row in self.gateways if row.number != gateway.number)

    @property
    def own(self) -> GatewayRow | None:
        """This gateway; None before the first table."""
        return self.find(self.own_number)

    def find(self, number: int | None) -> GatewayRow | None:
        """Returns the gateway with this number if it runs."""
        return next((row for row in self.gateways if row.number == number), None)

    @property
    def takers(self) -> Sequence[GatewayRow]:
        """Gateways that take new calls."""
        return [row for row in self.gateways if row.state == "ready"]

    def destination(self, request: RoutedRequest) -> GatewayRow | None:
        """Returns the gateway that answers the request; None: this one. Raises OverloadedError
        gateway_restarting."""
        found = self._choose(request)
        return None if found is None or found.number == self.own_number else found

    def _choose(self, request: RoutedRequest) -> GatewayRow | None:
        for name in (*request.path.split("/"), request.call_id, request.secret):
            # What an ended gateway has made is nowhere: this one answers that there is none.
            if (named := self.find(gateway_of(name))) is not None:
                return named
        if request.is_other_doors or _is_below(request.path, HOME_PATHS):
            return self._home()
        if request.rated_key_id:
            return self._by_hash(request.rated_key_id)
        if conversation_id := request.conversation_id or _conversation_of(request.path):
            named = self.find(gateway_of(conversation_id))
            return named if named in self.takers else self._by_hash(conversation_id)
        own = self.own
        if own is None:
            return None
        if own.state in ("retiring", "draining"):
            return min(self.takers, key=lambda row: row.load, default=None)
        return None

    def _home(self) -> GatewayRow:
        for row in self.gateways:
            if row.is_home:
                return row
        raise OverloadedError(
            "the gateway that knows devices and settings is starting again",
            retry_after_s=2,
            code="gateway_restarting",
        )

    def _by_hash(self, name: str) -> GatewayRow | None:
        """Returns the gateway of a name: the same one as long as its slot has one. Another slot
        that fails or returns moves only its own names."""
        return max(self.takers, key=lambda row: _weight(name, row.slot), default=None)


def _weight(name: str, slot: int) -> bytes:
    return sha256(f"{slot} {name}".encode("utf-8", "replace")).digest()


def _is_below(path: str, heads: Iterable[str]) -> bool:
    return any(path == head or path.startswith(f"{head}/") for head in heads)


def _conversation_of(path: str) -> str:
    """Returns the id in the path of a kept conversation; empty for other paths."""
    if not path.startswith(CONVERSATION_PATH):
        return ""
    return path.removeprefix(CONVERSATION_PATH).partition("/")[0]
