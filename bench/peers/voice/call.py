"""One call to one system, over any protocol, with the same microphone and receiver for all."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial

from aiohttp import ClientError, ClientSession

from bench.client.base import RealtimeClient, connect
from bench.client.http import Address
from bench.client.latency_probe import AudioReceiver
from bench.client.microphone import Microphone
from bench.client.realtime import CannotConnect, ClientTransport, SessionRequest, background
from bench.client.webrtc import WebRtcClient
from bench.tools.utterance_audio import BenchUtterance, sleep_until
from core.audio import AudioFrame
from core.errors import RequestError

ANSWER_TIMEOUT_S = 8.0
"Longest wait for an answer."

QUIET_S = 0.8
"Silence after which an answer is over: longer than the pauses of the systems."


class VoiceCall:
    """State of one call. Only one task may await `say`, an utterance at a time."""

    def __init__(self, receiver: AudioReceiver) -> None:
        self._receiver = receiver
        self._clock = asyncio.get_running_loop().time
        self._answered = asyncio.Event()

    def hear(self, frame: AudioFrame, at: float) -> None:
        """Takes received audio."""
        self._receiver.receive(frame, at)
        if self._receiver.audible_at is not None:
            self._answered.set()

    async def say(self, microphone: Microphone, utterance: BenchUtterance) -> float | None:
        """Sends an utterance; returns the ms from its last sample to the first audible sample.

        None: no answer. Below 0 the answer came before the end of the utterance.
        """
        self._receiver.begin_turn()
        self._answered.clear()
        start = await microphone.say(utterance.pcm)
        ended_at = microphone.spoken_at(start + utterance.end - 1)
        assert ended_at is not None
        with suppress(TimeoutError):
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                await self._answered.wait()
        audible_at = self._receiver.audible_at
        while self._clock() < (quiet_at := self._receiver.silent_from + QUIET_S):
            await sleep_until(quiet_at, self._clock)
        return None if audible_at is None else 1000 * (audible_at - ended_at)


UtteranceSender = Callable[[BenchUtterance], Awaitable[float | None]]
"See `VoiceCall.say`."


@asynccontextmanager
async def realtime_line(
    address: Address, transport: ClientTransport, request: SessionRequest
) -> AsyncGenerator[UtteranceSender, None]:
    """Calls over the Realtime API. Raises CannotConnect."""
    line = VoiceCall(AudioReceiver(is_paced=transport == "webrtc"))
    async with (
        connect(address, transport, request, line.hear) as client,
        background(_unread(client)),
    ):
        yield partial(line.say, client.microphone)


@asynccontextmanager
async def small_webrtc_line(port: int) -> AsyncGenerator[UtteranceSender, None]:
    """Calls as pipecat's clients do: an offer and its answer as JSON. Raises CannotConnect."""
    line = VoiceCall(AudioReceiver(is_paced=True))
    client = WebRtcClient(line.hear)
    try:
        offer = {"sdp": await client.peer.offer(), "type": "offer"}
        try:
            async with (
                ClientSession(raise_for_status=True) as http,
                http.post(f"http://127.0.0.1:{port}/api/offer", json=offer) as response,
            ):
                answer = await response.json()
            await client.peer.accept(str(answer["sdp"]))
        except (ClientError, KeyError, RequestError) as error:
            raise CannotConnect(f"no answer to our offer: {error}") from error
        async with background(client.run()):
            await asyncio.sleep(QUIET_S)  # until its pipeline takes our audio
            yield partial(line.say, client.microphone)
    finally:
        await client.peer.close()


async def _unread(client: RealtimeClient) -> None:
    """Reads and drops the events; only the audio counts."""
    async for _ in client.events():
        continue
