"""Every bad offer gets its documented error, and leaves nothing behind."""

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from aiohttp import FormData

from server.runtime.clock import SystemClock
from signaling.realtime.client_secrets import ClientSecretStore
from tests.server.http.harness import error_of
from tests.signaling.realtime.servers import Server, Setup, against
from tests.signaling.realtime.webrtc_client import CALLS, SDP, Caller, form

pytestmark = pytest.mark.live

SECRETS = "/v1/realtime/client_secrets"

Offer = Callable[[str], tuple[Any, dict[str, str]]]
"From the SDP of a good offer to the body and headers of a bad request."


def without_audio(sdp: str) -> str:
    head, *sections = sdp.split("m=")
    kept = [section for section in sections if not section.startswith("audio")]
    return "m=".join([head, *kept])


def wants(**fields: Any) -> Offer:
    return lambda sdp: (form(sdp, {"type": "realtime", **fields}), {})


def hears(**transcription: Any) -> Offer:
    return wants(audio={"input": {"transcription": transcription}})


BAD_OFFERS: list[tuple[str, Offer, int, str, str | None]] = [
    ("not SDP", lambda _: ("hello", SDP), 400, "invalid_sdp", None),
    ("empty", lambda _: ("", SDP), 400, "invalid_sdp", None),
    ("not UTF-8", lambda _: (b"v=0\xff", SDP), 400, "invalid_sdp", None),
    ("half SDP", lambda sdp: (sdp[: sdp.index("m=")], SDP), 400, "sdp_without_audio", None),
    ("no audio", lambda sdp: (without_audio(sdp), SDP), 400, "sdp_without_audio", None),
    ("too long", lambda sdp: (sdp + "a=x\r\n" * 15_000, SDP), 413, "sdp_too_large", None),
    ("body too large", lambda sdp: (sdp + "a=x\r\n" * 50_000, SDP), 413, "too_large", None),
    ("form too large", lambda sdp: (form(sdp + "a=x\r\n" * 50_000), {}), 413, "too_large", None),
    (
        "JSON",
        lambda sdp: (json.dumps({"sdp": sdp}), {"Content-Type": "application/json"}),
        415,
        "unsupported_media_type",
        None,
    ),
    (
        "form without SDP",
        lambda _: (FormData({"sdpp": "x"}, default_to_multipart=True), {}),
        400,
        "missing_required_parameter",
        "sdp",
    ),
    (
        "no form",
        lambda _: ("nonsense", {"Content-Type": "multipart/form-data; boundary=x"}),
        400,
        "invalid_form",
        None,
    ),
    (
        "no boundary",
        lambda _: ("nonsense", {"Content-Type": "multipart/form-data"}),
        400,
        "invalid_form",
        None,
    ),
    ("session no JSON", lambda sdp: (form(sdp, "{"), {}), 400, "invalid_json", "session"),
    ("session no object", lambda sdp: (form(sdp, "5"), {}), 400, "invalid_type", "session"),
    (
        "session without type",
        lambda sdp: (form(sdp, {}), {}),
        400,
        "missing_required_parameter",
        "session.type",
    ),
    ("typo", wants(voise="x"), 400, "unknown_parameter", "session.voise"),
    (
        "tools",
        wants(tools=[{"type": "file_search"}]),
        400,
        "invalid_value",
        "session.tools[0].type",
    ),
    (
        "bad language",
        hears(language="xx"),
        400,
        "unsupported_language",
        "session.audio.input.transcription.language",
    ),
    (
        "bad recogniser",
        hears(model="nonsense"),
        404,
        "model_not_found",
        "session.audio.input.transcription.model",
    ),
    ("bad model", wants(model="nonsense"), 404, "model_not_found", "session.model"),
    (
        "bad voice",
        wants(audio={"output": {"voice": "nobody"}}),
        400,
        "voice_not_found",
        "session.audio.output.voice",
    ),
    (
        "wrong rate",
        wants(audio={"input": {"format": {"type": "audio/pcm", "rate": 8000}}}),
        400,
        "invalid_value",
        "session.audio.input.format.rate",
    ),
]


@pytest.mark.parametrize(
    ("offer", "status", "code", "param"),
    [r[1:] for r in BAD_OFFERS],
    ids=[r[0] for r in BAD_OFFERS],
)
def test_a_bad_offer_gets_its_documented_error(
    offer: Offer, status: int, code: str, param: str | None
) -> None:
    async def scene(server: Server) -> None:
        caller = Caller()
        body, headers = offer(await caller.peer.offer())
        response = await server.client.post(CALLS, data=body, headers=headers)
        error = await error_of(response)
        assert (response.status, error["code"]) == (status, code), error
        assert param in (None, error["param"])
        assert (server.sessions.count, server.door.calls.count) == (0, 0)
        await caller.peer.close()

    against(scene)


PART = b'--b\r\nContent-Disposition: form-data; name="sdp"'
CHARSET = b'--b\r\nContent-Disposition: form-data; name="_charset_"\r\n\r\n'

BROKEN_FORMS: Mapping[str, bytes] = {
    "nothing": b"",
    "no base64": PART + b"\r\nContent-Transfer-Encoding: base64\r\n\r\nx\r\n--b--\r\n",
    "an unknown transfer encoding": (
        PART + b"\r\nContent-Transfer-Encoding: rot13\r\n\r\nx\r\n--b--\r\n"
    ),
    "a charset that is too long": CHARSET + b"x" * 40 + b"\r\n--b--\r\n",
    "a form in the form": (
        b"--b\r\nContent-Type: multipart/mixed; boundary=c\r\n\r\n--c--\r\n--b--\r\n"
    ),
    "a header without a colon": b"--b\r\nContent-Disposition\r\n\r\nx\r\n--b--\r\n",
    "a thousand headers": b"--b\r\n" + b"X-A: b\r\n" * 1000 + b"\r\n",
    "a header without end": b"--b\r\nX: " + b"x" * 50_000,
    "cut in a header": PART,
    "cut in a part": PART + b"\r\n\r\nv=0",
}


@pytest.mark.parametrize("sent", BROKEN_FORMS.values(), ids=BROKEN_FORMS)
def test_a_broken_form_is_a_400(sent: bytes) -> None:
    async def scene(server: Server) -> None:
        kind = {"Content-Type": "multipart/form-data; boundary=b"}
        response = await server.client.post(CALLS, data=sent, headers=kind)
        assert (response.status, (await error_of(response))["code"]) == (400, "invalid_form")

    against(scene)


def test_a_boundary_longer_than_the_longest_charset_is_a_400() -> None:
    async def scene(server: Server) -> None:
        long = "b" * 60
        kind = {"Content-Type": f"multipart/form-data; boundary={long}"}
        sent = CHARSET.replace(b"--b", b"--" + long.encode()) + b"utf-8\r\n"
        response = await server.client.post(CALLS, data=sent, headers=kind)
        assert (response.status, (await error_of(response))["code"]) == (400, "invalid_form")

    against(scene)


def test_an_mcp_server_with_an_unreadable_address_is_a_400() -> None:
    """This holds even if no MCP server is allowed, as here."""
    tool = {"type": "mcp", "server_label": "x", "server_url": "http://[x"}
    session = {"type": "realtime", "tools": [tool]}

    async def scene(server: Server) -> None:
        caller = Caller()
        offered = form(await caller.peer.offer(), session)
        await caller.peer.close()
        for path, sent in ((CALLS, {"data": offered}), (SECRETS, {"json": {"session": session}})):
            response = await server.client.post(path, **sent)
            error = await error_of(response)
            assert (response.status, error["code"]) == (400, "mcp_server_refused")
            assert error["param"] == "session.tools[0].server_url"
        async with server.client.ws_connect("/v1/realtime") as ws:
            await ws.send_json({"type": "session.update", "session": session})
            while (event := await ws.receive_json(timeout=30))["type"] != "error":
                pass
            assert event["error"]["code"] == "mcp_server_refused"
            await ws.send_json({"type": "session.update", "session": {"type": "realtime"}})
            assert (await ws.receive_json(timeout=30))["type"] == "session.updated"

    against(scene, Setup(secrets=ClientSecretStore(SystemClock())))
