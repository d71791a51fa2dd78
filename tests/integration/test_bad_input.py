"""Every kind of bad input at every API gets its documented error code, and the server goes on."""

import re
from base64 import b64encode
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientWebSocketResponse

from core.errors import ConfigError
from server.config.load import load
from signaling.realtime.routes import routes
from tests.server.http.harness import error_of
from tests.shared import ROOT
from tests.signaling.realtime.servers import Server, against
from tests.signaling.realtime.webrtc_client import CALLS, SDP, Caller, form, talking

pytestmark = pytest.mark.live

Refusal = tuple[int, str, str | None]
"Status, code, `param`."

MEGABYTE = "x" * 1_000_000
WRONG_RATE = {"audio": {"input": {"format": {"type": "audio/pcm", "rate": 8_000}}}}
BAD_LANGUAGE = {"audio": {"input": {"transcription": {"language": "xx"}}}}
LANGUAGE = "session.audio.input.transcription.language"
MCP_LABEL = "session.tools[0].server_label"
NOISE = "session.audio.input.noise_reduction.type"
PNG = f"data:image/png;base64,{b64encode(bytes.fromhex('89504e470d0a1a0a')).decode()}"
RESULT = {"type": "function_call_output", "call_id": "nobody", "output": "{}"}
REFERENCE = {"type": "item_reference", "id": "nobody"}
PART = "item.content[0]"
BESIDE = "response.input[0].content[0].type"
SOUND = "response.input[0].content[0].audio"
RATE = "session.audio.input.format.rate"


async def refusal_of(response: Any) -> Refusal:
    error = await error_of(response)
    return response.status, error["code"], error["param"]


def offers(make: Callable[[str], str]) -> Callable[[Server], Awaitable[Refusal]]:
    """Sends a valid offer after `make` has changed it."""

    async def act(server: Server) -> Refusal:
        caller = Caller()
        sdp = make(await caller.peer.offer())
        refused = await refusal_of(await server.client.post(CALLS, data=sdp, headers=SDP))
        await caller.peer.close()
        return refused

    return act


def wants(**session: Any) -> Callable[[Server], Awaitable[Refusal]]:
    """Sends a valid offer with an invalid session object."""

    async def act(server: Server) -> Refusal:
        caller = Caller()
        body = form(await caller.peer.offer(), {"type": "realtime", **session})
        refused = await refusal_of(await server.client.post(CALLS, data=body))
        await caller.peer.close()
        return refused

    return act


def posts(path: str) -> Callable[[Server], Awaitable[Refusal]]:
    async def act(server: Server) -> Refusal:
        return await refusal_of(await server.client.post(f"{CALLS}{path}", data="v=0", headers=SDP))

    return act


def offers_again(*, is_closed: bool) -> Callable[[Server], Awaitable[Refusal]]:
    async def act(server: Server) -> Refusal:
        async with talking(server) as caller:
            path = f"{CALLS}/{caller.call_id}"
            if is_closed:
                await server.client.post(f"{path}/hangup")
            return await refusal_of(await server.client.post(path, data="v=0", headers=SDP))

    return act


OVER_HTTP: list[tuple[str, Callable[[Server], Awaitable[Refusal]], Refusal]] = [
    ("not SDP", offers(lambda _: "hello"), (400, "invalid_sdp", None)),
    (
        "SDP without audio",
        offers(lambda sdp: sdp[: sdp.index("m=audio")]),
        (400, "sdp_without_audio", None),
    ),
    ("1 MB of SDP", offers(lambda _: MEGABYTE), (413, "too_large", None)),
    (
        "a second offer on a closed call",
        offers_again(is_closed=True),
        (404, "call_not_found", None),
    ),
    (
        "a second offer on a living call",
        offers_again(is_closed=False),
        (409, "call_already_answered", None),
    ),
    ("unknown call", posts("/rtc_unknown"), (404, "call_not_found", None)),
    ("hanging up an unknown call", posts("/rtc_unknown/hangup"), (404, "call_not_found", None)),
    ("wrong field", wants(voise="x"), (400, "unknown_parameter", "session.voise")),
    ("audio of the wrong rate", wants(**WRONG_RATE), (400, "invalid_value", RATE)),
    ("bad language", wants(**BAD_LANGUAGE), (400, "unsupported_language", LANGUAGE)),
]

Sent = str | dict[str, Any]


def update(**session: Any) -> Sent:
    return {"type": "session.update", "session": {"type": "realtime", **session}}


def create(item: dict[str, Any], previous: str | None = None) -> Sent:
    return {"type": "conversation.item.create", "item": item, "previous_item_id": previous}


def respond(**response: Any) -> Sent:
    return {"type": "response.create", "response": response}


def said(*content: dict[str, Any]) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": list(content)}


def shown(url: str) -> dict[str, Any]:
    return {"type": "input_image", "image_url": url}


def heard(audio: str) -> dict[str, Any]:
    return {"type": "input_audio", "audio": audio}


AS_EVENTS: list[tuple[str, Sent, str, str | None]] = [
    ("not JSON", "{", "invalid_json", None),
    ("JSON, but no object", "[]", "invalid_json", None),
    ("unknown type", {"type": "session.destroy"}, "unknown_event_type", "type"),
    ("wrong field", update(voise="x"), "unknown_parameter", "session.voise"),
    ("wrong type", update(instructions=5), "invalid_type", "session.instructions"),
    ("1 MB long", update(instructions=MEGABYTE), "event_too_large", None),
    ("audio of the wrong rate", update(**WRONG_RATE), "invalid_value", RATE),
    ("bad language", update(**BAD_LANGUAGE), "unsupported_language", LANGUAGE),
    ("MCP", update(tools=[{"type": "mcp"}]), "missing_required_parameter", MCP_LABEL),
    ("a stored prompt", update(prompt={"id": "p"}), "prompt_not_found", "session.prompt.id"),
    (
        "noise",
        update(audio={"input": {"noise_reduction": {"type": "all"}}}),
        "invalid_value",
        NOISE,
    ),
    ("unknown previous item", create(said(), "nobody"), "item_not_found", "previous_item_id"),
    ("a result without its call", create(RESULT), "item_not_found", "item.call_id"),
    ("an address", create(said(shown("http://x/y.png"))), "invalid_image", f"{PART}.image_url"),
    ("nobody sees", create(said(shown(PNG))), "unsupported_content", f"{PART}.type"),
    ("no audio", create(said(heard("AAAA"))), "invalid_audio", f"{PART}.audio"),
    ("nothing to cancel", {"type": "response.cancel"}, "response_cancel_not_active", None),
    ("unknown reference", respond(input=[REFERENCE]), "item_not_found", "response.input[0].id"),
    ("an image beside", respond(input=[said(shown(PNG))]), "unsupported_content", BESIDE),
    ("a context of sound", respond(input=[said(heard("AAAA"))]), "unsupported_parameter", SOUND),
]


def documented() -> set[str]:
    """Returns every error code in the table of the API's documentation."""
    page = (ROOT / "docs" / "realtime.md").read_text()
    table = page.partition("## Errors")[2].partition("\n## ")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    return {code for row in rows for code in re.findall(r"`([a-z_]+)`", row)}


@pytest.mark.parametrize(
    ("act", "refusal"), [row[1:] for row in OVER_HTTP], ids=[row[0] for row in OVER_HTTP]
)
def test_bad_http_input_has_its_documented_code(
    act: Callable[[Server], Awaitable[Refusal]], refusal: Refusal
) -> None:
    async def scene(server: Server) -> None:
        assert await act(server) == refusal
        assert refusal[1] in documented()
        await server.all_left()
        async with talking(server):
            assert server.sessions.count == 1

    against(scene)


async def _refused(ws: ClientWebSocketResponse, sent: Sent) -> dict[str, Any]:
    await (ws.send_str(sent) if isinstance(sent, str) else ws.send_json(sent))
    answer: dict[str, Any] = await ws.receive_json()
    return answer


@pytest.mark.parametrize(
    ("sent", "code", "param"), [row[1:] for row in AS_EVENTS], ids=[row[0] for row in AS_EVENTS]
)
def test_a_bad_event_has_its_documented_code(sent: Sent, code: str, param: str | None) -> None:
    async def over_websocket(server: Server) -> None:
        async with server.client.ws_connect("/v1/realtime") as ws:
            for begun in ("session.created", "conversation.created"):
                assert (await ws.receive_json())["type"] == begun
            refused = await _refused(ws, sent)
            assert (refused["type"], refused["error"]["code"]) == ("error", code)
            assert refused["error"]["param"] == param
            lives = await _refused(ws, update(instructions="still here"))
            assert lives["session"]["instructions"] == "still here"

    async def over_webrtc(server: Server) -> None:
        async with talking(server) as caller:
            if isinstance(sent, str):
                caller.peer.send(sent)
            else:
                caller.send(**sent)
            refused = (await caller.expect("error"))[-1]
            assert (refused["error"]["code"], refused["error"]["param"]) == (code, param)
            caller.send(type="session.update", session={"type": "realtime"})
            await caller.expect("session.updated")

    assert code in documented()
    against(over_websocket)
    if len(str(sent)) < len(MEGABYTE):  # a stock client's channel sends no more than 64 kB
        against(over_webrtc)


def test_every_error_code_is_documented() -> None:
    async def scene(server: Server) -> None:
        named = {code for route in routes(server.door) for code in route.error_codes}
        assert not named - documented()

    against(scene)


def test_a_misspelt_setting_is_named(tmp_path: Path) -> None:
    file = tmp_path / "earshot.toml"
    file.write_text("[turn]\nsilence_msec = 400\n")
    with pytest.raises(ConfigError, match=r"config\.turn: unknown key 'silence_msec'"):
        load({}, file=file)
