"""Events that clients of the Realtime API send."""

import json
from typing import Any

from aiohttp import ClientWebSocketResponse

from pipeline.shared.settings import ResponseRequest
from signaling.realtime.protocol.client_events import ResponseCreate, SessionUpdate
from signaling.realtime.protocol.decode import decode
from signaling.realtime.session.response import response_request
from signaling.realtime.session.settings import SessionConfiguration, apply_session_update

ONE = "candidate:1 1 udp 2122260223 192.0.2.1 51712 typ host generation 0"


PASSWORD = "l4Ck9s0mE3xAmpl3Pwd0123v"


HEAD = f"a=ice-ufrag:Gx7p\r\na=ice-pwd:{PASSWORD}\r\n"


RFC = (
    "a=group:BUNDLE 0 1\r\nm=audio 9 UDP/TLS/RTP/SAVPF 111\r\na=mid:0\r\n"
    f"{HEAD}a={ONE} ufrag Gx7p\r\na=end-of-candidates\r\n"
)


def after(
    *updates: dict[str, Any], terms: SessionConfiguration | None = None
) -> SessionConfiguration:
    terms = terms or SessionConfiguration()
    for sent in updates:
        event = decode(json.dumps({"type": "session.update", "session": sent}))
        assert isinstance(event, SessionUpdate)
        terms = apply_session_update(terms, event.session)
    return terms


def realtime(**fields: Any) -> dict[str, Any]:
    return {"type": "realtime", **fields}


def heard(**fields: Any) -> dict[str, Any]:
    return realtime(audio={"input": fields})


def decoding(**fields: Any) -> dict[str, Any]:
    return realtime(earshot={"transcription": fields})


def asked(**params: Any) -> ResponseRequest:
    event = decode(json.dumps({"type": "response.create", "response": params}))
    assert isinstance(event, ResponseCreate)
    return response_request(event.response)


Event = dict[str, Any]


async def expect(ws: ClientWebSocketResponse, kind: str) -> list[Event]:
    """Returns all events up to the first one of this type."""
    seen: list[Event] = []
    while not seen or seen[-1]["type"] != kind:
        seen.append(await ws.receive_json())
    return seen


async def update(ws: ClientWebSocketResponse, **session: Any) -> Event:
    await ws.send_json({"type": "session.update", "session": {"type": "realtime", **session}})
    return (await expect(ws, "session.updated"))[-1]["session"]  # type: ignore[no-any-return]
