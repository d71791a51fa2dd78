"""`/api/ws/chatbot`: questions and answers in text frames."""

import asyncio
import json
from collections.abc import Awaitable, Callable

import pytest
from aiohttp import ClientWebSocketResponse, WSMsgType

from devices.willow.wis.chat_params import DEFAULT_TEMPERATURE
from devices.willow.wis.door import WillowSettings
from engines.base import LlmOptions
from tests.devices.willow.wis.servers import HeldLlm, Scene, Server, against
from tests.loop import longest_turn
from tests.server.http.harness import error_of

pytestmark = pytest.mark.live

PATH = "/api/ws/chatbot"


def talk(
    act: Callable[[Server, ClientWebSocketResponse], Awaitable[None]],
    scene: Scene | None = None,
    query: str = "",
) -> None:
    """Yields a connection; afterwards its conversation may have no listener."""

    async def connected(server: Server) -> None:
        async with server.client.ws_connect(PATH + query) as ws:
            await act(server, ws)
        await server.without_listeners()

    against(connected, scene)


def test_questions_are_answered_in_order_and_remembered() -> None:
    async def act(server: Server, ws: ClientWebSocketResponse) -> None:
        for text in ("one", "two", "four"):
            await ws.send_str(text)
        answers = [await ws.receive_str() for _ in range(3)]
        assert answers == ["you said one.", "you said two.", "you said it is 4."]
        assert [len(messages) for messages in server.scene.llm.asked] == [1, 3, 5, 7]

    talk(act)


def test_a_conversation_continues_over_a_new_connection() -> None:
    async def act(server: Server, ws: ClientWebSocketResponse) -> None:
        await ws.send_str("one")
        await ws.receive_str()
        async with server.client.ws_connect(f"{PATH}?conversation_id=hall") as again:
            await again.send_str("two")
            await again.receive_str()
        assert [len(messages) for messages in server.scene.llm.asked] == [1, 3]

    talk(act, query="?conversation_id=hall")


def test_query_parameters_apply_to_every_question() -> None:
    llm = HeldLlm()
    llm.goes_on.set()
    wished = LlmOptions(0.5, 9, top_p=0.9, default_temperature=DEFAULT_TEMPERATURE)

    async def act(_: Server, ws: ClientWebSocketResponse) -> None:
        await ws.send_str("one")
        await ws.receive_str()
        assert (llm.languages_asked, llm.options) == (["de"], [wished])

    talk(act, Scene(llm=llm), "?language=de&temperature=0.5&max_new_tokens=9&top_p=.9")


def test_a_wrong_question_is_answered_and_the_connection_stays_open() -> None:
    async def act(server: Server, ws: ClientWebSocketResponse) -> None:
        await ws.send_str(" ")
        assert json.loads(await ws.receive_str())["error"]["param"] == "text"
        await ws.send_str("x" * 4097)
        assert "the limit is 4096" in json.loads(await ws.receive_str())["error"]["message"]
        await ws.send_bytes(b"one")
        assert json.loads(await ws.receive_str())["error"]["code"] == "invalid_message"
        server.scene.llm.fails = True
        await ws.send_str("one")
        assert json.loads(await ws.receive_str())["error"] == {
            "message": "llm engine 'echo': fails on purpose",
            "type": "server_error",
            "code": "engine_failed",
            "param": None,
        }
        server.scene.llm.fails = False
        await ws.send_str("one")
        assert await ws.receive_str() == "you said one."

    talk(act)


def test_a_frame_above_the_limit_ends_the_connection() -> None:
    async def act(_: Server, ws: ClientWebSocketResponse) -> None:
        await ws.send_str("x" * 100_000)
        assert (await ws.receive()).type is WSMsgType.CLOSE

    talk(act)


def test_the_number_of_waiting_questions_is_limited() -> None:
    llm = HeldLlm()

    async def act(_: Server, ws: ClientWebSocketResponse) -> None:
        await ws.send_str("first")
        await llm.is_asked.wait()
        for _later in range(9):
            await ws.send_str("later")
        assert json.loads(await ws.receive_str())["error"]["code"] == "server_full"
        llm.goes_on.set()
        answers = [await ws.receive_str() for _later in range(9)]
        assert set(answers) == {"One whole sentence. And another one."}

    talk(act, Scene(llm=llm))


def test_a_client_that_leaves_cancels_its_question() -> None:
    llm = HeldLlm()

    async def act(_: Server, ws: ClientWebSocketResponse) -> None:
        await ws.send_str("one")
        await llm.is_asked.wait()
        await ws.close()
        await llm.is_closed.wait()
        assert llm.closed_early == 1

    talk(act, Scene(llm=llm))


def test_announcements_are_sent() -> None:
    async def act(server: Server, ws: ClientWebSocketResponse) -> None:
        await ws.send_str("one")
        await ws.receive_str()
        assert await server.scene.conversations.announce("hall", "The timer rings.")
        assert await ws.receive_str() == "The timer rings."

    talk(act, query="?conversation_id=hall")


@pytest.mark.parametrize(
    ("query", "param"),
    [("?temperature=9", "temperature"), ("?max_new_tokens=-1", "max_new_tokens")],
)
def test_wrong_parameters_are_refused_before_the_upgrade(query: str, param: str) -> None:
    async def act(server: Server) -> None:
        response = await server.client.get(PATH + query)
        assert (response.status, (await error_of(response))["param"]) == (400, param)

    against(act)


def test_a_plain_request_is_refused() -> None:
    async def act(server: Server) -> None:
        response = await server.client.get(PATH)
        assert (response.status, (await error_of(response))["code"]) == (400, "websocket_expected")

    against(act)


def test_a_connection_beyond_the_limit_gets_retry_after() -> None:
    async def act(server: Server, _: ClientWebSocketResponse) -> None:
        headers = {
            "Connection": "Upgrade",
            "Upgrade": "websocket",
            "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
        }
        refused = await server.client.get(PATH, headers=headers)
        assert (refused.status, refused.headers["Retry-After"]) == (503, "5")

    talk(act, Scene(settings=WillowSettings(max_calls=1)))


def test_a_flood_of_frames_does_not_block_the_loop() -> None:
    """Each frame is refused at once."""
    binary = b"\x82\x81\0\0\0\0x"

    async def act(server: Server) -> None:
        url = server.client._base_url
        assert url is not None
        reader, writer = await asyncio.open_connection(url.host, url.port)
        writer.write(
            f"GET {PATH} HTTP/1.1\r\nHost: {url.host}\r\nConnection: Upgrade\r\n"
            "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
            "Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n\r\n".encode()
        )
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
        async with longest_turn() as longest:
            writer.write(binary * 2000)
            for _ in range(2000):
                await reader.readuntil(b"invalid_message")
        assert longest.cpu_s < 0.02
        writer.close()
        await server.without_listeners()

    against(act)
