"""Streams one recording to a Realtime server in real time, and times the words that come back."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

from bench.client.base import RealtimeClient, connect
from bench.client.http import Address
from bench.client.latency_probe import speech_span
from bench.client.microphone import RATE_HZ
from bench.client.realtime import (
    ClientTransport,
    ConnectionLost,
    ReceivedEvent,
    SessionRequest,
    background,
)
from bench.client.turn import TurnLog
from core.audio import AudioFrame, Pcm

SILENCE_MS = 500
"Silence for `server_vad`: the Realtime API's own default."

LATE_S = 0.8
"Time after speech in which a server may still report that there was speech."

TRANSCRIPTION = "conversation.item.input_audio_transcription"
FINAL = frozenset((f"{TRANSCRIPTION}.completed", f"{TRANSCRIPTION}.failed"))


@dataclass(frozen=True, slots=True)
class StreamedTranscript:
    """Result of one recording. Times are None where there was nothing to measure."""

    text: str
    took_ms: float
    """Streamed: time from the last speech sample to the final text. Uploaded: from request to
    answer."""
    first_partial_ms: float | None = None
    "Time from the first speech sample to the first words."
    partials: tuple[str, ...] = ()
    "The shown partials, without repetitions."
    error: str = ""


class StreamingClient:
    """Client that streams recordings. Only one task may await `say`, one recording at a time."""

    def __init__(self, client: RealtimeClient, timeout_s: float) -> None:
        self._client, self._timeout_s = client, timeout_s
        self._clock = asyncio.get_running_loop().time
        self._changed = asyncio.Event()
        self._spoken: dict[str, str] = {}
        self._former: frozenset[str] = frozenset()
        self._begin()

    def _begin(self) -> None:
        # A recording that was given up may still get its words after the next one began.
        self._former |= self._spoken.keys()
        self._log = TurnLog()
        self._spoken = {}
        "Item id -> its text, in the order of the speech. Empty: not known yet."
        self._open: set[str] = set()
        self._partials: list[str] = []
        self._final_at: float | None = None
        self._error = ""

    async def read(self) -> None:
        """Handles events until the connection is over."""
        async for received in self._client.events():
            self._take(received)
            self._changed.set()
        self._changed.set()

    async def say(self, pcm: Pcm, span: tuple[int, int] | None = None) -> StreamedTranscript:
        """Streams 24 kHz mono and returns when its text is final. Raises ConnectionLost.

        span: first and one past the last sample of speech, where it is known.
        """
        self._begin()
        start = await self._client.mouth.say(pcm)
        first, end = span or speech_span(pcm, RATE_HZ) or (0, len(pcm))
        begun_at = self._spoken_at(start + first)
        ended_at = self._spoken_at(start + end - 1)
        is_final = await self._finished(ended_at + LATE_S)
        words_at, final_at = self._log.words_at, self._final_at
        error = self._error or ("" if is_final else f"no final text within {self._timeout_s:g} s")
        return StreamedTranscript(
            text=" ".join(filter(None, self._spoken.values())),
            took_ms=1000 * ((final_at if final_at is not None else self._clock()) - ended_at),
            first_partial_ms=None if words_at is None else 1000 * (words_at - begun_at),
            partials=tuple(self._partials),
            error=error,
        )

    def _take(self, received: ReceivedEvent) -> None:
        item = str(received.event.get("item_id", ""))
        if item in self._former:
            return
        self._log.take(received)
        match received.type:
            case "input_audio_buffer.speech_started" if item:
                # sorts by the order of the speech, not of the texts
                self._spoken.setdefault(item, "")
            case "input_audio_buffer.committed":
                self._spoken.setdefault(item, "")
                if item not in self._log.transcripts:
                    self._open.add(item)
            case "conversation.item.deleted":  # its words are in a later item
                self._spoken.pop(item, None)
                self._open.discard(item)
            case "error":
                self._error = self._log.error
            case kind if kind in FINAL:
                self._spoken[item] = self._log.transcripts.get(item, "")
                self._open.discard(item)
                self._final_at = received.at
                self._error = self._log.error
        words = self._words()
        if words and (not self._partials or self._partials[-1] != words):
            self._partials.append(words)

    def _words(self) -> str:
        """Returns all words so far, as a client would show them; empty if there are no unfinished
        words."""
        now = f"{self._log.stable} {self._log.unstable}".strip()
        return " ".join(filter(None, (*self._spoken.values(), now))) if now else ""

    async def _finished(self, late_at: float) -> bool:
        """Waits for the text of all speech; returns False when it does not come in time."""
        deadline = self._clock() + self._timeout_s
        while not self._is_over(late_at):
            if self._client.end:
                raise ConnectionLost(f"the connection ended: {self._client.end}")
            now = self._clock()
            if now >= deadline:
                return False
            self._changed.clear()
            until = late_at if now < late_at else deadline
            with suppress(TimeoutError):
                async with asyncio.timeout_at(until):
                    await self._changed.wait()
        return True

    def _is_over(self, late_at: float) -> bool:
        """Returns True when no speech is in progress, all is recognised, and late events would have
        come."""
        if self._log.is_speech or self._open:
            return False
        return self._clock() >= late_at

    def _spoken_at(self, position: int) -> float:
        at = self._client.mouth.spoken_at(position)
        return self._clock() if at is None else at


@asynccontextmanager
async def speaking(
    address: Address, transport: ClientTransport, wish: SessionRequest, timeout_s: float
) -> AsyncGenerator[StreamingClient, None]:
    """Connects; the server's audio is ignored. Raises CannotConnect."""
    async with connect(address, transport, wish, _unheard) as client:
        speaker = StreamingClient(client, timeout_s)
        async with background(speaker.read()):
            yield speaker


def _unheard(_: AudioFrame, __: float) -> None:
    """Ignores audio: no response is asked for."""
