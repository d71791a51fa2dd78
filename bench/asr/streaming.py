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
"Beginning of the types of all transcription events."

FINAL = frozenset((f"{TRANSCRIPTION}.completed", f"{TRANSCRIPTION}.failed"))
"Types of the events that end a transcription."


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
    utterances: int = 0
    "Utterances that the server found and finished in a streamed recording."
    empty_utterances: int = 0
    "Those of them without text, as the recogniser or the server's no-speech filter left them."
    error: str = ""


class StreamingClient:
    """Client that streams recordings. Only one task may await `say`, one recording at a time."""

    def __init__(self, client: RealtimeClient, timeout_s: float) -> None:
        self._client, self._timeout_s = client, timeout_s
        self._clock = asyncio.get_running_loop().time
        self._changed = asyncio.Event()
        self._texts: dict[str, str] = {}
        self._earlier_items: frozenset[str] = frozenset()
        self._begin()

    def _begin(self) -> None:
        # Words of a recording that was given up may still arrive after the next one began.
        self._earlier_items |= self._texts.keys()
        self._log = TurnLog()
        self._texts = {}
        "Item id -> its text, in the order of the speech. Empty: not known yet."
        self._unfinished: set[str] = set()
        self._finished: set[str] = set()
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
        start = await self._client.microphone.say(pcm)
        first, end = span or speech_span(pcm, RATE_HZ) or (0, len(pcm))
        speech_began_at = self._sent_at(start + first)
        speech_ended_at = self._sent_at(start + end - 1)
        is_final = await self._wait_until_final(speech_ended_at + LATE_S)
        first_words_at, final_at = self._log.first_words_at, self._final_at
        error = self._error or ("" if is_final else f"no final text within {self._timeout_s:g} s")
        return StreamedTranscript(
            text=" ".join(filter(None, self._texts.values())),
            took_ms=1000
            * ((final_at if final_at is not None else self._clock()) - speech_ended_at),
            first_partial_ms=None
            if first_words_at is None
            else 1000 * (first_words_at - speech_began_at),
            partials=tuple(self._partials),
            utterances=len(self._finished),
            empty_utterances=sum(not self._texts[item].strip() for item in self._finished),
            error=error,
        )

    def _take(self, received: ReceivedEvent) -> None:
        item = str(received.event.get("item_id", ""))
        if item in self._earlier_items:
            return
        self._log.add(received)
        match received.type:
            case "input_audio_buffer.speech_started" if item:
                # keeps the order of the speech: texts may come in another order
                self._texts.setdefault(item, "")
            case "input_audio_buffer.committed":
                self._texts.setdefault(item, "")
                if item not in self._log.transcripts:
                    self._unfinished.add(item)
            case "conversation.item.deleted":  # its words are in a later item
                self._texts.pop(item, None)
                self._unfinished.discard(item)
                self._finished.discard(item)
            case "error":
                self._error = self._log.error
            case kind if kind in FINAL:
                self._texts[item] = self._log.transcripts.get(item, "")
                self._unfinished.discard(item)
                self._finished.add(item)
                self._final_at = received.at
                self._error = self._log.error
        words = self._words()
        if words and (not self._partials or self._partials[-1] != words):
            self._partials.append(words)

    def _words(self) -> str:
        """Returns all words so far, as a client would show them; empty if no partial is being
        shown."""
        now = f"{self._log.stable} {self._log.unstable}".strip()
        return " ".join(filter(None, (*self._texts.values(), now))) if now else ""

    async def _wait_until_final(self, late_at: float) -> bool:
        """Waits for the text of all speech; returns False when it does not come in time."""
        deadline = self._clock() + self._timeout_s
        while not self._is_over(late_at):
            if self._client.end_reason:
                raise ConnectionLost(f"the connection ended: {self._client.end_reason}")
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
        if self._log.is_speech or self._unfinished:
            return False
        return self._clock() >= late_at

    def _sent_at(self, position: int) -> float:
        at = self._client.microphone.spoken_at(position)
        return self._clock() if at is None else at


@asynccontextmanager
async def open_streaming_client(
    address: Address, transport: ClientTransport, request: SessionRequest, timeout_s: float
) -> AsyncGenerator[StreamingClient, None]:
    """Connects; the server's audio is ignored. Raises CannotConnect."""
    async with connect(address, transport, request, _ignore_audio) as client:
        speaker = StreamingClient(client, timeout_s)
        async with background(speaker.read()):
            yield speaker


def _ignore_audio(_: AudioFrame, __: float) -> None:
    """Ignores audio: no response is asked for."""
