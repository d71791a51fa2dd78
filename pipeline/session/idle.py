"""Measures the user's silence after an answer. After a set time the assistant speaks again."""

from collections.abc import Callable

from core.audio import ASR_RATE_HZ, samples_to_ms
from core.conversation.events import (
    InputCommitted,
    ItemAdded,
    ItemDone,
    PlayoutCleared,
    PlayoutStarted,
    PlayoutStopped,
    ResponseCreated,
    ResponseDone,
    SessionEvent,
    SpeechDiscarded,
    SpeechStarted,
    SpeechStopped,
    TimeoutTriggered,
)
from core.conversation.ids import new_id
from core.conversation.items import AudioPart, Item, MessageItem
from core.ports import Clock
from core.tasks import Alarm
from pipeline.conversation.history import NOTHING_SAID, History
from pipeline.playout.playout import ClientPlayoutClock
from pipeline.shared.settings import ResponseRequest, SessionSettings


def idle_response_request(items: tuple[Item, ...]) -> ResponseRequest:
    """Returns a request for a response to `items` followed by a silence. The silence is not kept in
    the history."""
    return ResponseRequest(input=(*items, NOTHING_SAID))


def commit_silence(
    history: History, samples: int, silence_ms: int, emit: Callable[[SessionEvent], None]
) -> None:
    """Adds an empty item for the silence that ended at sample `samples` of the session."""
    end_ms = round(samples_to_ms(samples, ASR_RATE_HZ))
    item = MessageItem(new_id("item"), "user", (AudioPart(""),))
    emit(TimeoutTriggered(item.id, max(0, end_ms - silence_ms), end_ms))
    previous = history.add(item)
    emit(InputCommitted(item.id, previous))
    emit(ItemAdded(item, previous))
    emit(ItemDone(item, previous))


class UserIdleTimer:
    """Measures one session's silence, from the end of an answer's sound.

    In client-paced sessions that end is estimated: the client is taken to play in real time.
    """

    def __init__(
        self,
        clock: Clock,
        client: ClientPlayoutClock,
        settings: Callable[[], SessionSettings],
        remind: Callable[[int], None],
    ) -> None:
        """Takes `remind`, which is called with the length of the silence in ms."""
        self._clock, self._client = clock, client
        self._settings, self._remind = settings, remind
        self._alarm = Alarm(clock.now)
        self._has_answered = False
        self._responding = self._playing = self._speaking = False

    def on_event(self, event: SessionEvent) -> None:
        """Takes note of an event that was sent to the client."""
        match event:
            case SpeechStarted():
                self._speaking = True
            case SpeechStopped() | SpeechDiscarded():
                self._speaking = False
            case ResponseCreated(parameters=parameters) if parameters.in_conversation:
                self._responding = True
            case ResponseDone(parameters=parameters) if parameters.in_conversation:
                self._responding, self._has_answered = False, True
            case PlayoutStarted():
                self._playing = True
            case PlayoutStopped() | PlayoutCleared():
                self._playing = False
            case _:
                return
        self._update_alarm()

    async def run(self) -> None:
        """Calls `remind` each time the silence is long enough. Runs until it is cancelled."""
        while True:
            await self._alarm.wait()
            if (timeout_ms := self._timeout_ms()) is not None:
                self._remind(timeout_ms)

    def _update_alarm(self) -> None:
        timeout_ms = self._timeout_ms()
        is_busy = self._responding or self._playing or self._speaking
        if timeout_ms is None or is_busy or not self._has_answered:
            self._alarm.set(None)
        else:
            begins_at = max(self._clock.now(), self._client.ends_at)
            self._alarm.set(begins_at + timeout_ms / 1000)

    def _timeout_ms(self) -> int | None:
        settings = self._settings()
        detection = settings.turn_detection
        if detection is None or not (settings.answers and detection.create_response):
            return None
        return detection.idle_timeout_ms
