"""A server process: questions by text and by voice, with the key in the URL."""

import asyncio
from collections.abc import Iterator

import pytest
from aiohttp import ClientSession

from media.files.decode import decode_file
from tests.devices.willow.wis.requests import KEY, asked, heard
from tests.devices.willow.wis.uploads import form, wav
from tests.server.process import serving
from tests.speech import say

pytestmark = pytest.mark.live


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a server on every address, so that the key is needed."""
    folder = tmp_path_factory.mktemp("willow")
    with serving(folder, "--host", "0.0.0.0", settings={"EARSHOT_API_KEY": KEY}) as server:
        yield server.url.replace("127.0.0.1", f"anna:{KEY}@127.0.0.1")
        assert server.stop() == 0
    assert not [line for line in server.said if KEY in line or "Traceback" in line]
    assert not [line for line in server.said if "kitchen" in line or "Licht" in line]


COMMAND = "turn on the kitchen light"


def test_a_light_is_switched(url: str) -> None:
    status, body = asked("GET", f"{url}/api/chatbot", text=COMMAND)
    assert (status, body) == (200, b'{"response":"Turned on the kitchen lights."}')
    status, body = asked("GET", f"{url}/api/chatbot", text="schalte das Licht in der Küche aus")
    assert (status, body.decode()) == (200, '{"response":"Küchenlicht ausgeschaltet."}')


def test_a_spoken_answer_is_intelligible(url: str) -> None:
    status, sound = asked("GET", f"{url}/api/chatbot/tts", text=COMMAND, speaker="CLB")
    assert (status, sound[:4]) == (200, b"fLaC")
    assert "turn" in heard(url, sound)
    assert "kitchen" in heard(url, sound)


def test_speech_is_repeated_and_answered(url: str) -> None:
    spoken = wav(say(COMMAND, lead_ms=200, tail_ms=400))
    status, again = asked("POST", f"{url}/api/sts", form(spoken), format="WAV")
    assert status == 200, again
    assert "turn on the kitchen" in heard(url, again)
    status, answer = asked("POST", f"{url}/api/sts", form(spoken), format="WAV", answer="true")
    assert status == 200, answer
    assert len(decode_file(answer)) != len(decode_file(again))
    assert "kitchen" in heard(url, answer)


def test_a_timer_rings_on_the_connection_that_set_it(url: str) -> None:
    async def talk() -> list[str]:
        async with ClientSession() as client, client.ws_connect(f"{url}/api/ws/chatbot") as ws:
            await ws.send_str("set a timer for one second")
            return [await ws.receive_str(timeout=10) for _ in range(2)]

    assert asyncio.run(talk()) == ["Timer set for 1 second.", "Your timer is done."]


@pytest.mark.parametrize("path", ["chatbot?text=a", "chatbot/tts?text=a", "ws/chatbot", "sts"])
def test_nothing_is_served_without_the_key(url: str, path: str) -> None:
    method = "POST" if path == "sts" else "GET"
    status, _ = asked(method, f"{url.replace(f'anna:{KEY}@', '')}/api/{path}")
    # Only this machine itself needs no key, and only on a server for itself alone.
    assert status == 401
