"""How connections end."""

from dataclasses import dataclass

from aiohttp import WSCloseCode


@dataclass(frozen=True, slots=True)
class XiaozhiCloseReason:
    """Why a connection ends, and the code that its board is told."""

    why: str
    code: int = WSCloseCode.OK


LEFT = XiaozhiCloseReason("the device left")
CLOSED = XiaozhiCloseReason("closed", WSCloseCode.POLICY_VIOLATION)
OVER = XiaozhiCloseReason("going_away", WSCloseCode.SERVICE_RESTART)
HELLO_EXPECTED = XiaozhiCloseReason("hello_expected", WSCloseCode.PROTOCOL_ERROR)
