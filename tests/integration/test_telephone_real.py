"""A person's recording by telephone, against a server in a process of its own, in real time."""

import asyncio
from pathlib import Path

import numpy as np
import pytest
from aiohttp import ClientSession

from bench.client.http import Address
from bench.client.microphone import RATE_HZ
from bench.client.telephone import TelephoneSystem, TwilioAccount, call_by_twilio
from bench.server.own_server import own_server
from bench.tools.speech_bounds import find_speech_bounds
from bench.voice.clips import clips
from bench.voice.stub_server import StubDelays
from bench.voice.telephone import PUBLIC_URL, free_lines, open_call
from core.audio import AudioFrame
from media.codecs import g711
from media.resample import Resampler
from tests.conftest import require

pytestmark = pytest.mark.real

RECORDING = Path(__file__).parents[2] / "../shared/data/real-commands/order_000.flac"
DEADLINE_S = 90


@pytest.mark.parametrize("system", ["audiosocket", "twilio"])
def test_a_person_is_answered(system: TelephoneSystem, tmp_path: Path) -> None:
    async def main(address: Address) -> None:
        async with open_call(address, system, lines, DEADLINE_S) as call:
            report = await call.say(clip.pcm, (clip.begin, clip.end))
        assert report.status == "answered"
        assert report.answer_ms > 200

    async def served() -> None:
        config = StubDelays(50, 50, 50).write(tmp_path)
        async with (
            asyncio.timeout(DEADLINE_S),
            own_server(["--config", str(config)], environ=lines.environ) as server,
        ):
            await main(server.address)

    require(RECORDING.exists(), "the recordings of people are not here")
    clip, lines = clips([RECORDING])[0], free_lines()
    asyncio.run(served())


def test_speech_over_an_answer_clears_twilios_buffer(tmp_path: Path) -> None:
    """The time from the first sample of speech includes the 160 ms that make sure that it is
    speech, so a second is allowed on a busy machine; test_twilio.py has the exact limit."""

    async def main(address: Address) -> None:
        loud = asyncio.Event()

        def hear(frame: AudioFrame, _: float) -> None:
            if np.abs(frame.pcm).max() > 1000:
                loud.set()

        account = TwilioAccount(lines.auth_token, PUBLIC_URL)
        async with (
            ClientSession(address.url) as http,
            call_by_twilio(http, account, hear) as peer,
        ):
            await peer.microphone.say(narrow)
            await loud.wait()
            start = await peer.microphone.say(narrow)
            await peer.cleared.wait()
            began_at = peer.microphone.spoken_at(start + begin)
            assert began_at is not None
            assert peer.cleared_at[0] - began_at < 1

    async def served() -> None:
        config = StubDelays(50, 50, 50).write(tmp_path)
        with config.open("a", encoding="utf-8") as file:
            file.write("tone_ms = 5000\n")
        async with (
            asyncio.timeout(DEADLINE_S),
            own_server(["--config", str(config)], environ=lines.environ) as server,
        ):
            await main(server.address)

    require(RECORDING.exists(), "the recordings of people are not here")
    clip, lines = clips([RECORDING])[0], free_lines()
    narrow = Resampler(RATE_HZ, g711.RATE_HZ).push(clip.pcm)
    begin = find_speech_bounds(narrow, g711.RATE_HZ).begin or 0
    asyncio.run(served())
