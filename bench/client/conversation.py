"""Holds a conversation turn by turn, and measures each part of a turn at the client."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from bench.client.base import RealtimeClient, connect
from bench.client.http import Address
from bench.client.latency_probe import AudioPlayer, AudioReceiver
from bench.client.microphone import RATE_HZ
from bench.client.realtime import ClientTransport, ConnectionLost, SessionRequest, background
from bench.client.turn import StageTimes, Status, TurnLog
from bench.tools.speech_bounds import SpeechBounds, find_speech_bounds
from core.audio import AudioFrame, Pcm

TAIL_S = 0.2
"Wait after the end of the answer, for audio that is still on its way."

TRACE_S = 1.0
"""Wait for the server's `earshot.turn`, which it sends when the audio is over by its own clock,
including the silence at the end."""

NO_EVENT_S = 2.0
"Silence after which a server that paces its sound, and sends no events about it, counts as done."

POLL_S = 0.05
"Interval of the checks whether the connection is over, or the answer is played to its end."

MAX_TURN_S = 600
"Longest turn."

OnChange = Callable[[TurnLog], None]
"Function that is called after each change of the turn."


@dataclass(frozen=True, slots=True)
class TurnReport:
    """Result of one turn. Times are None where there was nothing to measure."""

    status: Status
    transcript: str
    reply: str
    error: str
    voice_to_voice_ms: float | None
    """Time from the last speech sample, or from sending a text message, to the first audible sample
    of the answer."""
    first_words_ms: float | None
    "Time from the first speech sample to the first words of a transcript."
    transcript_ms: float | None
    "Time from the last speech sample to the complete transcript."
    reply_text_ms: float | None
    "Time from the last speech sample to the first words of the answer."
    server_ms: float | None
    "Time from the end of speech to the first audio, as reported by the server."
    stages: tuple[StageTimes, ...]
    answer_ms: float
    "Length of the answer's audio."
    is_end_known: bool = True
    "False: there is audio after the speech, so times from the last speech sample are None."
    audio: Sequence[AudioFrame] = field(default=(), repr=False)


class ConversationClient:
    """Client that holds a conversation. Only one turn may run at a time.

    timeout_s: seconds without any event after which an answer is given up.
    """

    def __init__(
        self, client: RealtimeClient, receiver: AudioReceiver, timeout_s: float, on_change: OnChange
    ) -> None:
        self._client, self._receiver = client, receiver
        self._timeout_s = timeout_s
        self._on_change = on_change
        self._clock = asyncio.get_running_loop().time
        self._changed = asyncio.Event()
        self._log = TurnLog()
        self._committed_utterances = 0
        self._stopped_at = 0
        "Microphone position when the server last reported the end of speech."
        self._over = asyncio.Event()
        "Set once the connection is over."
        self._reports_turns: bool | None = None
        "True if this server reports the timing of a turn; None: not known yet."

    async def read(self) -> None:
        """Handles events until the connection is over. It must run during all turns."""
        async for received in self._client.events():
            self._log.add(received)
            match received.type:
                case "input_audio_buffer.speech_started":
                    self._interrupt(received.at)
                case "input_audio_buffer.speech_stopped":
                    self._stopped_at = self._client.microphone.position
                case "input_audio_buffer.committed":
                    self._committed_utterances += 1
                    if self._committed_utterances > 1:
                        # The audio so far answered only the first part of the turn.
                        self._receiver.begin_turn()
            self._on_change(self._log)
            self._changed.set()
        self._over.set()
        self._changed.set()

    async def say(self, pcm: Pcm, span: tuple[int, int] | None = None) -> TurnReport:
        """Sends audio in real time and waits for the answer. Raises ConnectionLost.

        pcm: samples at 24 kHz. span: first and one past the last sample of speech, if known.
        """
        bounds = (
            SpeechBounds(*span)
            if span
            else await asyncio.to_thread(find_speech_bounds, pcm, RATE_HZ)
        )
        self._begin()
        start = await self._say(pcm)
        # Before the wait, because the microphone forgets times after a minute.
        speech_began_at, speech_ended_at = self._times(bounds, start)
        await self._wait_for_answer()
        return self._report(speech_began_at, speech_ended_at)

    async def listen(self) -> TurnReport:
        """Waits until the user has spoken into a live microphone and the answer is over. Raises
        ConnectionLost."""
        self._begin()
        microphone = self._client.microphone
        start = microphone.position
        while not self._log.is_speech:  # the user may take any time to begin
            await self._wait_for_change()
        await self._wait_for_answer()
        pcm, begin = microphone.sent_since(start)
        pcm = pcm[: max(0, self._stopped_at - begin)]
        bounds = await asyncio.to_thread(find_speech_bounds, pcm, RATE_HZ)
        return self._report(*self._times(bounds, begin))

    async def write(self, text: str) -> TurnReport:
        """Sends a text message and waits for the answer. Raises ConnectionLost."""
        self._begin()
        content = [{"type": "input_text", "text": text}]
        item = {"type": "message", "role": "user", "content": content}
        self._client.send({"type": "conversation.item.create", "item": item})
        self._client.send({"type": "response.create"})
        sent_at = self._clock()
        await self._wait_for_answer()
        return self._report(None, sent_at)

    async def _say(self, pcm: Pcm) -> int:
        """Sends audio in real time. Returns the position of its first sample. Raises
        ConnectionLost, as soon as the connection is over."""
        async with asyncio.TaskGroup() as tasks:
            saying = tasks.create_task(self._client.microphone.say(pcm))
            ending = tasks.create_task(self._over.wait())
            await asyncio.wait((saying, ending), return_when=asyncio.FIRST_COMPLETED)
            is_said = saying.done()
            saying.cancel()
            ending.cancel()
        if not is_said:
            raise self._lost()
        return saying.result()

    def _lost(self) -> ConnectionLost:
        return ConnectionLost(f"the connection ended: {self._client.end_reason}")

    def _times(self, bounds: SpeechBounds, start: int) -> tuple[float | None, float | None]:
        """Returns the times of the first and the last speech sample, as far as they are known."""
        time_of = self._client.microphone.spoken_at
        return (
            None if bounds.begin is None else time_of(start + bounds.begin),
            None if bounds.end is None else time_of(start + max(0, bounds.end - 1)),
        )

    def _interrupt(self, now: float) -> None:
        """Stops the playout of a WebSocket client and reports how much was played.

        Over WebRTC the server paces the audio and does both itself.
        """
        played_ms = self._receiver.interrupt(now)
        if played_ms is not None and self._log.output_item_id:
            self._client.send(
                {
                    "type": "conversation.item.truncate",
                    "item_id": self._log.output_item_id,
                    "content_index": 0,
                    "audio_end_ms": played_ms,
                }
            )

    def _begin(self) -> None:
        self._log = TurnLog()
        self._committed_utterances = 0
        self._receiver.begin_turn()

    async def _wait_for_answer(self) -> None:
        """Waits until the answer is played, or nothing has happened for `timeout_s`."""
        began_at = self._clock()
        while not self._is_over():
            active_at = max(began_at, self._log.last_at, self._receiver.silent_from)
            if self._clock() > min(active_at + self._timeout_s, began_at + MAX_TURN_S):
                break
            await self._wait_for_change()
        over_at = self._clock()
        await asyncio.sleep(TAIL_S)
        # Other servers report no timing. Only the first turn waits to find that out.
        if self._reports_turns is not False:
            while not self._log.has_server_times and self._clock() < over_at + TRACE_S:
                await self._wait_for_change()
            self._reports_turns = self._reports_turns or self._log.has_server_times

    async def _wait_for_change(self) -> None:
        """Waits for an event, but at most POLL_S. Raises ConnectionLost."""
        if self._client.end_reason:
            raise self._lost()
        self._changed.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(POLL_S):
                await self._changed.wait()

    def _is_over(self) -> bool:
        log, now = self._log, self._clock()
        if not self._receiver.is_paced:
            return log.is_over(has_sound_events=False) and now >= self._receiver.silent_from
        is_quiet = now > max(log.last_at, self._receiver.silent_from) + NO_EVENT_S
        return log.is_over(has_sound_events=not is_quiet)

    def _report(self, speech_began_at: float | None, speech_ended_at: float | None) -> TurnReport:
        log, audio = self._log, self._receiver.audible_frames()
        return TurnReport(
            status=log.outcome(has_audio=bool(audio)),
            transcript=log.transcript,
            reply=log.reply,
            error=log.error,
            voice_to_voice_ms=_between_ms(speech_ended_at, self._receiver.audible_at),
            first_words_ms=_between_ms(speech_began_at, log.first_words_at),
            transcript_ms=_between_ms(
                speech_ended_at, log.transcript_at if log.transcript else None
            ),
            reply_text_ms=_between_ms(speech_ended_at, log.first_reply_at),
            server_ms=log.server_latency_ms,
            stages=tuple(log.stages),
            answer_ms=round(sum(frame.duration_ms for frame in audio), 1),
            is_end_known=speech_ended_at is not None,
            audio=audio,
        )


@asynccontextmanager
async def open_conversation(
    address: Address,
    transport: ClientTransport,
    request: SessionRequest,
    *,
    timeout_s: float,
    on_change: OnChange = lambda log: None,
    player: AudioPlayer | None = None,
) -> AsyncGenerator[tuple[ConversationClient, RealtimeClient], None]:
    """Opens a connection for a conversation while the body runs. Raises CannotConnect.

    timeout_s: seconds without any event after which an answer is given up. on_change: called after
    each event. player: plays the received audio; None: it is only measured.
    """
    receiver = AudioReceiver(is_paced=transport != "ws", player=player)
    async with connect(address, transport, request, receiver.receive) as client:
        conversation = ConversationClient(client, receiver, timeout_s, on_change)
        async with background(conversation.read()):
            yield conversation, client


def _between_ms(begin: float | None, end: float | None) -> float | None:
    return None if begin is None or end is None else round(1000 * (end - begin), 1)
