"""How connections end."""

from dataclasses import dataclass

from aiohttp import WSCloseCode


@dataclass(frozen=True, slots=True)
class End:
    """Why a connection ends, and the code that its board is told."""

    why: str
    code: int = WSCloseCode.OK


LEFT = End("the device left")
CLOSED = End("closed", WSCloseCode.POLICY_VIOLATION)
OVER = End("going_away", WSCloseCode.SERVICE_RESTART)
HELLO_EXPECTED = End("hello_expected", WSCloseCode.PROTOCOL_ERROR)
