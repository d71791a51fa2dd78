"""Ephemeral keys: minted with the server's key, they allow only what they were minted for."""

import asyncio
import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from aiohttp import ClientResponse, WSCloseCode, WSServerHandshakeError, encode_basic_auth
from multidict import CIMultiDict
from openai.types.realtime import ClientSecretCreateResponse

from core.errors import OverloadedError, RequestError, Unauthorized
from media.webrtc.ice.settings import IceServer, IceSettings
from pipeline.shared.settings import DEFAULT, SessionSettings
from server.http.auth import AccessGate
from signaling.ice_servers import IceDoor, ice_routes
from signaling.realtime.client_secrets import ClientSecret, ClientSecretRequest, ClientSecretStore
from signaling.realtime.session.offer import configuration_of
from signaling.realtime.session.schema import (
    RealtimeSession,
    SessionExtension,
    SessionObject,
    TranscriptionSession,
)
from tests.pipeline.fakes import ManualClock
from tests.server.http.harness import KEY, error_of, serving
from tests.signaling.realtime.servers import Server, Setup, against
from tests.signaling.realtime.webrtc_client import CALLS, Caller, form

pytestmark = pytest.mark.live

PATH = "/v1/realtime/client_secrets"
BEARER = {"Authorization": f"Bearer {KEY}"}
SESSION = {
    "type": "realtime",
    "model": "echo",
    "instructions": "Be brief.",
    "earshot": {"conversation_id": "conv_mine"},
}
ORIGIN = {"Origin": "https://app.example"}


def remote(clock: ManualClock) -> Setup:
    """Returns a server on the network, for which every client needs a key."""
    return Setup(secrets=ClientSecretStore(clock), gate=AccessGate(is_local=False, key=KEY))


async def mint(server: Server, **body: Any) -> dict[str, Any]:
    async with server.client.post(PATH, json=body, headers=BEARER) as response:
        assert response.status == 200, await response.text()
        minted: dict[str, Any] = await response.json()
        return minted


async def connect(server: Server, key: str, query: str = "", **headers: str) -> dict[str, Any]:
    """Returns `session.created` over a browser's WebSocket."""
    protocols = ("realtime", f"openai-insecure-api-key.{key}")
    url = f"/v1/realtime?model=gpt-realtime{query}"
    async with server.client.ws_connect(url, protocols=protocols, headers=headers) as ws:
        assert ws.protocol == "realtime"
        created: dict[str, Any] = await ws.receive_json()
        return created


def test_a_secret_opens_its_session_until_it_expires(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    caplog.set_level(logging.DEBUG)

    async def scene(server: Server) -> None:
        minted = await mint(server, expires_after={"seconds": 60}, session=SESSION)
        ClientSecretCreateResponse.model_validate(minted)
        assert minted["value"].startswith("ek_")
        assert minted["expires_at"] == int((clock.wall() + timedelta(seconds=60)).timestamp())
        created = await connect(server, minted["value"], **ORIGIN)
        assert created["session"]["model"] == "echo"
        assert created["session"]["instructions"] == "Be brief."
        assert created["session"]["earshot"]["conversation_id"] == "conv_mine"
        clock.seconds = 60
        with pytest.raises(WSServerHandshakeError) as caught:
            await connect(server, minted["value"])
        assert caught.value.status == 401
        assert minted["value"] not in caplog.text

    against(scene, remote(clock))


def test_a_secret_opens_nothing_else() -> None:
    async def scene(server: Server) -> None:
        key = (await mint(server))["value"]
        mine = {"Authorization": f"Bearer {key}"}
        async with server.client.post(PATH, headers=mine) as response:
            assert response.status == 401
        for query in ("&conversation_id=conv_other", "&call_id=rtc_1"):
            with pytest.raises(WSServerHandshakeError) as caught:
                await connect(server, key, query)
            assert caught.value.status in (400, 403)
        with pytest.raises(WSServerHandshakeError) as caught:
            await connect(server, "ek_guessed")
        assert caught.value.status == 401

    against(scene, remote(ManualClock()))


def test_a_call_from_another_site_can_use_a_secret() -> None:
    async def scene(server: Server) -> None:
        key = (await mint(server, session=SESSION))["value"]
        headers = {"Authorization": f"Bearer {key}", **ORIGIN}
        peer = Caller().peer
        sdp_headers = {**headers, "Content-Type": "application/sdp"}
        offer = await peer.offer()
        async with server.client.post(CALLS, data=offer, headers=sdp_headers) as response:
            await opened(response)
        hangup = response.headers["Location"] + "/hangup"
        async with server.client.post(hangup, headers=headers) as ended:
            assert ended.status == 200
        await peer.close()

    async def opened(response: ClientResponse) -> None:
        assert response.status == 201, await response.text()
        assert response.headers["Access-Control-Allow-Origin"] == ORIGIN["Origin"]
        assert "Location" in response.headers["Access-Control-Expose-Headers"]

    against(scene, remote(ManualClock()))


@pytest.mark.parametrize("kind", ["sessions", "transcription_sessions"])
def test_beta_clients_mint_with_a_beta_session(kind: str) -> None:
    async def scene(server: Server) -> None:
        body = {"input_audio_format": "g711_ulaw", "client_secret": None}
        async with server.client.post(
            f"/v1/realtime/{kind}", json=body, headers=BEARER
        ) as response:
            assert response.status == 200, await response.text()
            minted = await response.json()
        assert minted["input_audio_format"] == "g711_ulaw"
        key = minted["client_secret"]["value"]
        created = await connect(server, key, **{"OpenAI-Beta": "realtime=v1"})
        assert created["session"]["input_audio_format"] == "g711_ulaw"
        assert ("instructions" in created["session"]) == (kind == "sessions")

    against(scene, remote(ManualClock()))


@pytest.mark.parametrize(
    ("body", "status", "code", "param"),
    [
        ("{", 400, "invalid_json", None),
        ("[]", 400, "invalid_type", None),
        ('{"expires_after":{"seconds":5}}', 400, "invalid_value", "expires_after.seconds"),
        ('{"expires_after":{"anchor":"now"}}', 400, "invalid_value", "expires_after.anchor"),
        ('{"session":{"type":"x"}}', 400, "invalid_value", "session.type"),
        ('{"session":{"type":"realtime","voise":1}}', 400, "unknown_parameter", "session.voise"),
        (" " * 300_000, 413, "too_large", None),
    ],
)
def test_an_invalid_request_for_a_secret_is_refused(
    body: str, status: int, code: str, param: str | None
) -> None:
    async def scene(server: Server) -> None:
        async with server.client.post(PATH, data=body) as response:
            assert response.status == status
            error = await error_of(response)
            assert error["code"] == code
            assert error["param"] in (param, "")

    against(scene, Setup(secrets=ClientSecretStore(ManualClock())))


def test_live_secrets_are_limited_and_expired_ones_forgotten() -> None:
    clock = ManualClock()
    secrets = ClientSecretStore(clock, max_live=2)
    first, _ = secrets.mint(ClientSecretRequest())
    secrets.mint(ClientSecretRequest())
    with pytest.raises(OverloadedError) as caught:
        secrets.mint(ClientSecretRequest())
    assert caught.value.code == "too_many_client_secrets"
    assert first not in repr(vars(secrets))
    clock.seconds = 600
    secrets.mint(ClientSecretRequest())
    assert len(secrets._secrets) == 1
    with pytest.raises(Unauthorized):
        secrets.find(first)


def test_the_sessions_of_all_live_secrets_share_a_limit_in_bytes() -> None:
    clock = ManualClock()
    session = RealtimeSession(instructions="\N{PARROT}" * 100)
    secrets = ClientSecretStore(clock, max_bytes=1000)
    for _ in range(2):
        secrets.mint(ClientSecretRequest(session=session))
    with pytest.raises(OverloadedError, match="the limits are 10000 and 1000 bytes") as caught:
        secrets.mint(ClientSecretRequest(session=session))
    assert caught.value.code == "too_many_client_secrets"
    clock.seconds = 600
    secrets.mint(ClientSecretRequest(session=session))


def test_a_secret_opens_two_sessions_at_once() -> None:
    async def scene(server: Server) -> None:
        key = (await mint(server))["value"]
        protocols = ("realtime", f"openai-insecure-api-key.{key}")
        url = "/v1/realtime?model=gpt-realtime"
        async with (
            server.client.ws_connect(url, protocols=protocols) as first,
            server.client.ws_connect(url, protocols=protocols) as second,
        ):
            for ws in (first, second):
                await ws.receive_json()
            with pytest.raises(WSServerHandshakeError) as caught:
                await connect(server, key)
            assert caught.value.status == 429
            await connect(server, (await mint(server))["value"])

    against(scene, remote(ManualClock()))


@pytest.mark.parametrize("ends", [True, False])
def test_sessions_end_with_their_secret_if_it_was_minted_so(ends: bool) -> None:
    clock = ManualClock()

    async def scene(server: Server) -> None:
        minted = await mint(server, expires_after={"seconds": 10}, earshot={"ends_sessions": ends})
        clock.seconds = 9.95
        protocols = ("realtime", f"openai-insecure-api-key.{minted['value']}")
        url = "/v1/realtime?model=gpt-realtime"
        async with server.client.ws_connect(url, protocols=protocols) as ws:
            assert (await ws.receive_json())["type"] == "session.created"
            if not ends:
                return
            told = [message async for message in ws]
            assert told[-1].json()["error"]["code"] == "session_expired"
            assert ws.close_code == WSCloseCode.POLICY_VIOLATION

    against(scene, remote(clock))


@pytest.mark.parametrize("token", [None, "sk-dummy"])
def test_any_other_token_is_no_secret(token: str | None) -> None:
    """On this machine no key is needed, and stock clients send any."""
    assert ClientSecretStore(ManualClock()).find(token) is None


def bearer(key: str) -> list[tuple[str, str]]:
    return [("Authorization", f"Bearer {key}")]


def basic(key: str) -> list[tuple[str, str]]:
    return [("Authorization", encode_basic_auth("anybody", key))]


def two_lines(key: str) -> list[tuple[str, str]]:
    name = "Sec-WebSocket-Protocol"
    return [(name, "realtime"), (name, f"openai-insecure-api-key.{key}")]


@pytest.mark.parametrize("carried", [bearer, basic, two_lines])
def test_a_secret_opens_only_its_session_however_it_is_sent(
    carried: Callable[[str], list[tuple[str, str]]],
) -> None:
    async def scene(server: Server) -> None:
        headers = CIMultiDict(carried((await mint(server, session=SESSION))["value"]))
        async with server.client.ws_connect("/v1/realtime?model=x", headers=headers) as ws:
            session = (await ws.receive_json())["session"]
            assert (session["model"], session["instructions"]) == ("echo", "Be brief.")
            assert session["earshot"]["conversation_id"] == "conv_mine"
        for query, status in (("conversation_id=conv_other", 400), ("call_id=rtc_1", 403)):
            with pytest.raises(WSServerHandshakeError) as caught:
                await server.client.ws_connect(f"/v1/realtime?{query}", headers=headers)
            assert caught.value.status == status
        headers["Content-Type"] = "application/sdp"
        for path in (CALLS, "/v1/realtime"):
            other = f"{path}?conversation_id=conv_other"
            async with server.client.post(other, data="v=0", headers=headers) as response:
                assert response.status == 400
                assert (await error_of(response))["code"] == "cannot_update_conversation"

    against(scene, remote(ManualClock()))


def as_key(session: SessionObject) -> ClientSecret:
    """Returns a live secret for this session."""
    secrets = ClientSecretStore(ManualClock())
    token, _ = secrets.mint(ClientSecretRequest(session=session))
    minted = secrets.find(token)
    assert minted is not None
    return minted


def test_minted_settings_cannot_be_changed() -> None:
    minted = RealtimeSession(model="echo", earshot=SessionExtension(conversation_id="c"))
    wish = RealtimeSession(model="other", instructions="x")
    terms = configuration_of({}, lambda _: SessionSettings(), wish, as_key(minted))
    assert (terms.settings.llm, terms.settings.instructions) == ("echo", "x")
    assert terms.conversation_id == "c"
    other = RealtimeSession(earshot=SessionExtension(conversation_id="d"))
    with pytest.raises(RequestError):
        configuration_of({}, lambda _: SessionSettings(), other, as_key(minted))


@pytest.mark.parametrize("minted", [RealtimeSession(), TranscriptionSession()])
def test_a_secret_without_a_model_is_for_the_default(minted: SessionObject) -> None:
    query = {"model": "other", "intent": "transcription"}
    terms = configuration_of(query, lambda _: SessionSettings(), client_secret=as_key(minted))
    assert terms.settings.llm == DEFAULT
    assert terms.settings.answers == isinstance(minted, RealtimeSession)


@pytest.mark.parametrize(
    ("minted", "wish", "fixed"),
    [
        (TranscriptionSession(), RealtimeSession(), "transcription"),
        (RealtimeSession(), TranscriptionSession(), "realtime"),
    ],
)
def test_the_minted_type_of_session_cannot_be_changed(
    minted: SessionObject, wish: SessionObject, fixed: str
) -> None:
    with pytest.raises(RequestError, match=f"minted for '{fixed}'") as caught:
        configuration_of({}, lambda _: SessionSettings(), wish, as_key(minted))
    assert (caught.value.code, caught.value.param) == ("cannot_update_type", "session.type")
    configuration_of({}, lambda _: SessionSettings(), minted, as_key(minted))


def test_an_update_cannot_turn_a_transcription_session_into_an_answering_one() -> None:
    async def scene(server: Server) -> None:
        key = (await mint(server, session={"type": "transcription"}))["value"]
        headers = CIMultiDict(bearer(key))
        async with server.client.ws_connect("/v1/realtime?model=x", headers=headers) as ws:
            assert (await ws.receive_json())["session"]["type"] == "transcription"
            for session, answer in (
                ({"type": "realtime"}, "error"),
                ({"type": "transcription", "include": ["earshot.turn"]}, "session.updated"),
            ):
                await ws.send_json({"type": "session.update", "session": session})
                told = await ws.receive_json()
                assert told["type"] == answer
                code = "cannot_update_type" if answer == "error" else None
                assert told.get("error", {}).get("code") == code
        offer = form("v=0", {"type": "realtime"})
        async with server.client.post(CALLS, data=offer, headers=headers) as response:
            assert (await error_of(response))["code"] == "cannot_update_type"

    against(scene, remote(ManualClock()))


def test_a_secret_opens_the_list_of_turn_servers() -> None:
    """A browser needs the servers before its call; behind a NAT it can make no call without
    them."""
    secrets = ClientSecretStore(ManualClock())
    key, _ = secrets.mint(ClientSecretRequest())

    async def main() -> None:
        routes = ice_routes(
            IceDoor(IceSettings((IceServer(("stun:a.example",)),))), secrets.is_valid
        )
        async with serving(routes, gate=AccessGate(is_local=False, key=KEY)) as client:
            for token, status in ((key, 200), (KEY, 200), ("ek_guessed", 401)):
                headers = {"Authorization": f"Bearer {token}", **ORIGIN}
                async with client.get("/earshot/ice", headers=headers) as response:
                    assert response.status == status
                    assert "Access-Control-Allow-Origin" in response.headers
            async with client.get("/earshot/ice") as response:
                assert response.status == 401

    asyncio.run(main())
