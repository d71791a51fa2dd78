"""One client's live session: its user turns, responses, settings and tasks."""

import asyncio
import logging
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import NoReturn

from core.audio import AudioFrame, Pcm
from core.conversation.events import SessionEvent
from core.conversation.ids import new_id
from core.conversation.items import Item
from core.errors import Conflict, EarshotError
from engines.base import AsrPadding
from media.codecs.opus import LEAST_DELAY_MS
from media.webrtc.rtp.tracks import MAX_HOLD_S
from pipeline.conversation.conversation import Conversation
from pipeline.playout.playout import ClientPlayoutClock, Playout, SpeakerBuffer
from pipeline.response.coordinator import ResponseCoordinator
from pipeline.response.playback import PlaybackTracker
from pipeline.response.queue import ResponseQueue
from pipeline.response.response import Response
from pipeline.services import SessionServices
from pipeline.session.idle import UserIdleTimer, commit_silence, idle_response_request
from pipeline.session.items import (
    NO_RECORDINGS,
    ConversationItems,
    Recordings,
)
from pipeline.shared.outbox import SessionOutbox
from pipeline.shared.plugin_errors import FaultTolerantVad
from pipeline.shared.settings import (
    ConversationProfile,
    CurrentSettings,
    PlayoutPacing,
    ResponseRequest,
    SessionSettings,
)
from pipeline.shared.turn import Turn
from pipeline.user_turn.controller import UserTurnController
from pipeline.user_turn.events import InputActivity
from pipeline.user_turn.input_filters import InputFilters
from pipeline.user_turn.speaker import SpeakerListener
from pipeline.user_turn.speech_detection.speech_detector import SpeechDetector
from pipeline.user_turn.wake_word import WakeWordGate

# Activity.


class SessionActivity:
    """Activity of a session at this moment; for the wake word gate and for draining."""

    def __init__(
        self,
        input_activity: InputActivity,
        queue: ResponseQueue,
        playout: Playout,
        client: ClientPlayoutClock,
    ) -> None:
        self._input, self._queue = input_activity, queue
        self._playout, self._client = playout, client

    @property
    def is_busy(self) -> bool:
        """True when the user speaks, a transcript is under way, or a response is made or played."""
        is_answering = not self._queue.is_empty or self._playout.writer is not None
        return self._input.is_active or is_answering

    @property
    def answered_until(self) -> float:
        """Time at which the client will have played all sound that it was sent, in monotonic
        seconds."""
        return self._client.ends_at


class WordEndedAnswer:
    """Ends the answer that sounds when its session's wake word gate detects a word."""

    def __init__(self, responses: ResponseCoordinator, user_turns: UserTurnController) -> None:
        self._responses, self._user_turns = responses, user_turns

    @property
    def ends_only_by_word(self) -> bool:
        """True while an answer sounds that only a wake word or a stop word ends."""
        return self._responses.ends_only_by_word

    def wake_word_detected(self, later_samples: int) -> None:
        """Ends the answer. The audio after the word may begin the user's turn."""
        self._user_turns.drop_utterance(later_samples)
        self._responses.wake_word_detected()

    def stop_word_detected(self) -> None:
        """Ends the answer, and drops the utterance that holds the word."""
        self._user_turns.drop_utterance(0)
        self._responses.stop_word_detected()


logger = logging.getLogger(__name__)


class _SessionClosed(Exception):
    """Raised inside to end a session's task group, and with it every task. Never leaves `run`."""


class Session:
    """One client's live session. Doors create it through `Sessions.open` and drive it.

        async with sessions.open(SessionSettings(), paced_by="client") as session:
            session.feed(frame)                # 16 kHz audio of the microphone
            async for event in session.events: # what the client is to get
                ...

    Of the methods for doors, only `run`, `settled` and `ask` are coroutines; the others return at
    once. docs/realtime.md describes what a client sees of a session.
    """

    def __init__(
        self,
        settings: SessionSettings,
        conversation: Conversation,
        paced_by: PlayoutPacing,
        services: SessionServices,
    ) -> None:
        self.id = new_id("sess")
        self.conversation_id = conversation.id
        self._engines, self._clock = services.engines, services.clock
        self._listener = services.listener if conversation.owner is None else None
        self._conversation, self._settings = conversation, CurrentSettings(settings)
        self._tasks = asyncio.TaskGroup()
        "Entered by `run`. All tasks of the session belong to it."
        self.running = asyncio.Event()
        "Set once the session's tasks run. From then on commands have an effect."
        self._closing, self._changed = asyncio.Event(), asyncio.Event()
        "`_changed` is set by every event: `settled` checks then whether the session is at rest."
        self._bug: Exception | None = None
        "A bug while audio was processed. It ends the session, as a bug in one of its tasks does."
        self._asr_hold = ExitStack()
        "Keeps the recogniser in memory while the session runs."
        self._speakers, self._speaker_hold = services.speakers, ExitStack()
        "Recognises people by their voices. Its model is kept in memory while the session runs."
        self._input = InputActivity()
        clock, metrics = services.clock, services.metrics
        self._outbox = SessionOutbox(
            services.open_trace(self.id), metrics, self._on_event, logs_words=services.logs_words
        )
        self.events, self._emit = self._outbox.events, self._outbox.emit
        client = ClientPlayoutClock(clock)
        self._playback = PlaybackTracker(
            paced_by, clock, client, self._outbox, self._answer_of, self._drop_unplayed
        )
        self._playout = Playout(
            paced_by, self._playback, clock, client, metrics, self._deliver, self._outbox.room
        )
        # server-paced sessions receive Opus, which delays sound by at least this much
        late_ms = LEAST_DELAY_MS if paced_by == "server" else 0
        self._detector = SpeechDetector(FaultTolerantVad(self._engines.vad, metrics), late_ms)
        self._input_filters = InputFilters(self._playout, self._detector.guard)
        self._responses = ResponseCoordinator(
            conversation,
            services,
            self._playout,
            self._playback,
            self._settings,
            self._input,
            self._outbox,
            self._changed.set,
            self._tasks,
        )
        self._user_turns = UserTurnController(
            self._detector,
            self._engines,
            conversation.history,
            self._settings,
            self._input,
            self._responses,
            self._clock,
            self._emit,
            self._tasks,
            SpeakerListener(services.speakers, conversation, self._emit, self._tasks),
            services.codes,
        )
        self._items = ConversationItems(
            conversation,
            services,
            self._settings,
            self._input,
            self._transcript_known,
            self._responses.decide_call,
            self._emit,
            self._tasks,
        )
        self._activity = SessionActivity(self._input, self._responses.queue, self._playout, client)
        answer = WordEndedAnswer(self._responses, self._user_turns)
        self._wake = WakeWordGate(services, self._activity, answer, self._emit)
        self._idle = UserIdleTimer(clock, client, self._settings, self._respond_to_silence)
        self.configure(settings)

    # Interface for doors.

    async def run(self) -> None:
        """Runs the session until `close`.

        A bug in any of its tasks ends the session and is raised in an ExceptionGroup.
        """
        self._conversation.sessions.append(self)
        try:
            async with self._tasks as tasks:
                self._hold_asr()
                if self._speakers is not None:
                    hold = self._speakers.hold(self._conversation.owner)
                    self._speaker_hold.enter_context(hold)
                self._responses.mcp_servers.begin(tasks)
                self.running.set()
                tasks.create_task(self._user_turns.run(), name="endpoint-timer")
                tasks.create_task(self._responses.queue.run(), name="queue")
                tasks.create_task(self._idle.run(), name="idle-timer")
                tasks.create_task(self._playback.run(), name="playback")
                await self._until_closed()
        except* _SessionClosed:
            logger.debug("= session %s closed", self.id)
        finally:
            self.close()
            self._user_turns.close()
            self._responses.close()
            self._asr_hold.close()
            self._speaker_hold.close()
            self._playout.clear()
            self._playback.close()
            self._conversation.remove_session(self)
            self._outbox.close()
            self.events.close()

    def close(self) -> None:
        """Asks the session to end. Later calls have no effect."""
        self._closing.set()
        self._changed.set()

    async def settled(self) -> None:
        """Waits until the user is silent, and nothing is transcribed, answered or played."""
        while self._activity.is_busy and not self._closing.is_set():
            self._changed.clear()
            await self._changed.wait()

    def feed(self, frame: AudioFrame) -> None:
        """Processes audio of the microphone: one frame of 16 kHz mono PCM.

        The work is done before this returns, so no queue can build up. A caller with audio that
        comes faster than real time must let the event loop run in between. Ignored before `run` and
        after `close`. A bug, or another sample rate, ends the session and does not raise.
        """
        if not self._takes_input:
            return
        try:
            frame = self._wake.filter(self._input_filters.filter(frame))
            self._outbox.trace_frame(frame)
            self._user_turns.listen(frame)
        except Exception as bug:
            self._bug = bug
            self.close()

    def configure(self, settings: SessionSettings) -> None:
        """Replaces the settings. Raises RequestError; the former settings then stay in force."""
        self._engines.check(settings)
        self._responses.mcp_servers.configure(settings.mcp_servers)
        if self.settings.turn_detection is None and settings.turn_detection is not None:
            # No longer push to talk: a committed turn that still waits for the client's request
            # gets no response of its own.
            self._responses.finish_without_response()
        if settings != self.settings:
            self._responses.settings_changed()
        if settings.area or self.settings.area:
            self._conversation.place = replace(self._conversation.place, area=settings.area)
        is_other_asr = settings.asr != self.settings.asr
        self._settings.replace(settings)
        if is_other_asr and self.running.is_set():
            self._hold_asr()
        self._conversation.profile = ConversationProfile.of(settings)
        self._input_filters.configure(settings.echo, settings.noise_reduction)
        self._detector.configure(
            settings.turn_detection,
            self._input_filters.late_ms,
            has_noise_reduction=settings.noise_reduction != "off",
        )
        self._wake.configure(settings)
        self._outbox.trace_settings(settings, self._playout.paced_by, self._conversation.place)

    @property
    def settings(self) -> SessionSettings:
        """Settings that are in force now."""
        return self._settings()

    @property
    def area(self) -> str:
        """Room in which its client says that it stands; empty: it does not say."""
        return self.settings.area

    @property
    def conversation_key(self) -> str:
        """Identifies its conversation among those of all keys."""
        return self._conversation.key

    @property
    def fallback_padding(self) -> AsrPadding | None:
        """Padding that the recogniser uses in place of the configured one.

        None: the configured one.
        """
        return self._engines.fallback_padding(self.settings.asr, self.settings.padding)

    def commit_input(self) -> None:
        """Ends the utterance (push to talk). Does nothing in a closing session.

        Raises RequestError input_audio_buffer_commit_empty.
        """
        if not self._takes_input:
            return
        self._wake.check_awake()
        self._user_turns.commit()

    def clear_input(self) -> None:
        """Discards audio that has not been committed."""
        self._user_turns.clear()
        self._responses.decide()

    def add_item(
        self,
        item: Item,
        previous_item_id: str | None = None,
        recordings: Recordings = NO_RECORDINGS,
    ) -> None:
        """Adds an item to the conversation.

        Raises RequestError, Conflict: see `ConversationItems.add`.
        """
        # a transcript is of no use when the session ends
        used = recordings if self._takes_input else NO_RECORDINGS
        self._items.add(item, previous_item_id, used)

    def delete_item(self, item_id: str) -> None:
        """Deletes an item of the conversation. Raises RequestError item_not_found."""
        self._items.delete(item_id)

    def retrieve_item(self, item_id: str) -> None:
        """Sends an item of the conversation as an event. Raises RequestError item_not_found."""
        self._items.retrieve(item_id)

    def create_response(self, request: ResponseRequest) -> None:
        """Makes a response to the conversation so far.

        Waits for the transcript of audio that was just committed. Does nothing in a closing
        session. Raises Conflict conversation_already_has_active_response, RequestError.
        """
        if self._closing.is_set():
            return
        self._items.check_images_accepted(request.input or (), "response.input")
        self._responses.create(request)

    def cancel_response(self, response_id: str | None = None) -> None:
        """Cancels a response. Raises Conflict response_cancel_not_active."""
        self._responses.cancel(response_id)

    def clear_output(self) -> None:
        """Stops playout. A response that is still being made goes on without sound."""
        self._responses.cut_playout()
        self._changed.set()

    def truncate(self, item_id: str, audio_end_ms: int) -> None:
        """Cuts an answer to what the client played, in ms. Raises RequestError."""
        self._input_filters.drop_unplayed()
        self._responses.truncate(item_id, audio_end_ms)
        self._playback.client_truncated(item_id, audio_end_ms)

    def pull(self) -> AudioFrame | None:
        """Returns the next 20 ms at PACED_RATE_HZ for a server-paced session. None: silence."""
        return self._input_filters.on_pulled(self._playout.pull())

    def attach_speaker(self, speaker: SpeakerBuffer) -> None:
        """Names the buffer that holds what `pull` has given and the user has not heard. It is
        dropped when an answer is cut off, and the history gets what was heard."""
        self._playout.speaker = speaker

    @property
    def is_playout_paused(self) -> bool:
        """True while speech over an answer holds it: it may go on."""
        return self._playout.is_paused

    @property
    def next_sound_event(self) -> asyncio.Event | None:
        """Event that is set when there is sound to pull, for a server-paced session. A WebRTC call
        waits for it before it sends silence.

        None if no response is on its way, or it is already being played.
        """
        is_coming = self._is_response_due or self._user_turns.is_ending_within(MAX_HOLD_S)
        return self._playout.first_sound_event if is_coming and self.settings.answers else None

    @property
    def expects_response(self) -> bool:
        """True when a response is played, made or possible."""
        return self._is_response_due or self._playout.writer is not None

    @property
    def next_clause(self) -> tuple[str, int, str] | None:
        """Clause that `pull` gives next, for a server-paced session: (response id, number, text).

        None: it gives no sound, or sound that was not made from text.
        """
        writer = self._playout.writer
        answer = self._answer_of(writer.response_id) if writer else None
        clause = answer.spoken.clause_at(writer.heard_ms) if writer and answer else None
        return (writer.response_id, *clause) if writer and clause else None

    def say(self, text: str, *, voice: str = "", language: str = "") -> bool:
        """Announces `text` after what is being spoken. Returns False if it would not be played.

        voice, language (ISO 639-1): those of the session if they are empty.
        """
        return not self._closing.is_set() and self._responses.say(text, voice, language)

    async def ask(self, question: str) -> str | None:
        """Speaks a question like an announcement, and returns the words that the user says after
        it. The assistant does not respond to them. Waits until it is cancelled.

        None: another question waits, the session would not speak it, or it closes.
        """
        return None if self._closing.is_set() else await self._responses.ask(question)

    # Helpers.

    @property
    def _is_response_due(self) -> bool:
        """True when a response is made or possible: a transcript under way may lead to one."""
        return self._input.is_transcribing or self._responses.queue.has_response

    @property
    def _takes_input(self) -> bool:
        """True while the session runs and was not asked to end."""
        return self.running.is_set() and not self._closing.is_set()

    def _transcript_known(self, turn: Turn, error: EarshotError | None) -> None:
        self._responses.transcript_known(turn, error)
        self._changed.set()  # a deleted item gets no event, so `settled` must be woken here

    def _on_event(self, event: SessionEvent) -> None:
        self._idle.on_event(event)
        self._wake.on_event(event)
        if self._listener is not None:
            self._listener(self._conversation.place, event)
        self._changed.set()

    def _respond_to_silence(self, silence_ms: int) -> None:
        """Lets the assistant speak after the user's silence. An empty item stands for the silence.

        Not while the session sleeps: nobody would hear the answer.
        """
        if self._wake.is_asleep:
            return
        history = self._conversation.history
        commit_silence(history, self._detector.samples, silence_ms, self._emit)
        with suppress(Conflict):
            self.create_response(idle_response_request(history.items))

    def _hold_asr(self) -> None:
        """Keeps the configured recogniser in memory.

        The new one is loaded before the former is released: they may be the same model under two
        names.
        """
        former, self._asr_hold = self._asr_hold, ExitStack()
        self._asr_hold.enter_context(self._engines.hold(self.settings.asr))
        former.close()

    async def _until_closed(self) -> NoReturn:
        try:
            await self._closing.wait()
        finally:
            self.close()  # at once, whatever ends the session: its tasks take no more commands
        raise self._bug or _SessionClosed

    def _answer_of(self, response_id: str) -> Response | None:
        return self._responses.queue.find_response(response_id)

    def _drop_unplayed(self) -> None:
        self._input_filters.drop_unplayed()

    def _deliver(self, response_id: str, pcm: Pcm) -> None:
        self._input_filters.on_delivered(pcm)
        self._responses.deliver(response_id, pcm)
