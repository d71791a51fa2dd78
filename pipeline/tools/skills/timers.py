"""Timers of conversations. They have names, outlive connections and ring by voice."""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from core.conversation.ids import new_id
from core.conversation.speakers import SpeakerMatch
from core.errors import EarshotError
from core.ports import Announcer, Clock
from pipeline.tools.home import Home, TimerState
from pipeline.tools.skills.arguments import ToolError

MAX_TIMERS_PER_CONVERSATION = 20
"Most timers of a conversation: more than a user can tell apart by name."
MAX_TIMERS = 1000
"Most timers of all conversations, so that anonymous clients cannot fill the memory."
MAX_TIMER_S = 24 * 3600.0
"Longest timer. A longer one is a reminder: it must survive a restart, which timers do not."
MAX_NAME_CHARS = 40
"Most characters of a name, which is spoken in the announcement."
RING_S = 60.0
"Longest ringing. A user who has just closed the page may come back; later it only disturbs."
RETRY_S = 2.0
"Time between two attempts to reach a listener."

logger = logging.getLogger(__name__)

ANNOUNCEMENTS: Mapping[str, tuple[str, str]] = {
    "en": ("Your timer is done.", "Your {name} timer is done."),
    "de": ("Dein Timer ist abgelaufen.", "Dein Timer {name} ist abgelaufen."),
    "fr": ("Le minuteur est terminé.", "Le minuteur {name} est terminé."),
    "es": ("El temporizador ha terminado.", "El temporizador {name} ha terminado."),
    "it": ("Il timer è scaduto.", "Il timer {name} è scaduto."),
    "nl": ("Je timer is afgelopen.", "Je timer {name} is afgelopen."),
    "pt": ("O temporizador terminou.", "O temporizador {name} terminou."),
}
"Announcements of a timer by language, without and with its name. Other languages get English."


@dataclass(frozen=True, slots=True)
class Timer:
    """A timer. `ends_at` is valid while it runs, `paused_s` while it is paused."""

    id: str
    conversation_id: str
    language: str
    name: str
    duration_s: float
    ends_at: float
    "Monotonic seconds at which it rings."
    paused_s: float | None = None
    "Time left while it is paused; None: it is not paused."
    is_ringing: bool = False
    speaker: SpeakerMatch | None = None
    "Person who started it, by the voice; None: a guest or written words."

    def remaining_s(self, now: float) -> float:
        """Returns the time left in seconds. now: monotonic seconds."""
        if self.is_ringing:
            return 0.0
        return self.paused_s if self.paused_s is not None else max(0.0, self.ends_at - now)


class Timers:
    """All timers of the server. They ring only while `run` runs.

    home: shows the timers. announcer: speaks the announcements.
    """

    def __init__(self, home: Home, clock: Clock, announcer: Announcer) -> None:
        self._home, self._clock, self._announcer = home, clock, announcer
        self._timers: dict[str, Timer] = {}
        self._changed = asyncio.Event()
        home.show_timers(self.states)

    def states(self) -> tuple[TimerState, ...]:
        """Returns all timers as the home's snapshot shows them."""
        now = self._clock.now()
        return tuple(_state(timer, now) for timer in self._timers.values())

    def of(self, conversation_id: str, speaker: SpeakerMatch | None = None) -> tuple[Timer, ...]:
        """Returns the timers of a conversation, the oldest first.

        speaker: the person's timers of other conversations are included, too.
        """
        return tuple(
            timer
            for timer in self._timers.values()
            if timer.conversation_id == conversation_id or is_of(timer, speaker)
        )

    def get(self, timer_id: str) -> Timer | None:
        """Returns the timer with this id, of any conversation."""
        return self._timers.get(timer_id)

    def remaining_s(self, timer: Timer) -> float:
        """Returns the time left in seconds."""
        return timer.remaining_s(self._clock.now())

    def start(
        self,
        conversation_id: str,
        language: str,
        duration_s: float,
        name: str,
        speaker: SpeakerMatch | None = None,
    ) -> Timer:
        """Starts a timer.

        language: ISO 639-1 code of its announcement. name: its name, or empty. speaker: the person
        who asks; the announcement says the person's name.
        Raises ToolError too_many_timers, bad_duration.
        """
        if len(self.of(conversation_id)) >= MAX_TIMERS_PER_CONVERSATION:
            raise ToolError("too many timers", code="too_many_timers")
        if len(self._timers) >= MAX_TIMERS:
            raise ToolError("too many timers", code="too_many_timers")
        _check_duration(duration_s)
        timer = Timer(
            id=new_id("timer"),
            conversation_id=conversation_id,
            language=language,
            name=name[:MAX_NAME_CHARS],
            duration_s=duration_s,
            ends_at=self._clock.now() + duration_s,
            speaker=speaker,
        )
        self._put(timer)
        return timer

    def cancel(self, timer: Timer) -> None:
        """Removes a timer. It does not ring any more."""
        self._timers.pop(timer.id, None)
        self._wake()

    def change(self, timer: Timer, by_s: float) -> Timer:
        """Adds `by_s` seconds, or removes them if negative. A timer without time left rings at
        once.

        Returns its new state. Raises ToolError bad_duration.
        """
        now = self._clock.now()
        remaining_s = max(0.0, timer.remaining_s(now) + by_s)
        _check_duration(max(remaining_s, 1.0))
        changed = replace(
            timer,
            duration_s=max(0.0, timer.duration_s + by_s),
            ends_at=now + remaining_s,
            paused_s=None if timer.paused_s is None else remaining_s,
        )
        self._put(changed)
        return changed

    def pause(self, timer: Timer) -> Timer:
        """Pauses a timer and returns its new state."""
        paused = replace(timer, paused_s=timer.remaining_s(self._clock.now()))
        self._put(paused)
        return paused

    def resume(self, timer: Timer) -> Timer:
        """Lets a paused timer run on and returns its new state."""
        now = self._clock.now()
        running = replace(timer, ends_at=now + timer.remaining_s(now), paused_s=None)
        self._put(running)
        return running

    async def run(self) -> None:
        """Rings each timer when it is due, until cancelled."""
        async with asyncio.TaskGroup() as rings:
            while True:
                now = self._clock.now()
                waiting = [t for t in self._timers.values() if _is_waiting(t)]
                for timer in [t for t in waiting if t.ends_at <= now]:
                    ringing = replace(timer, is_ringing=True)
                    self._put(ringing)
                    rings.create_task(self._ring(ringing), name=timer.id)
                pending = [t.ends_at for t in self._timers.values() if _is_waiting(t)]
                await self._wait(min(pending) - now if pending else None)

    async def _wait(self, timeout_s: float | None) -> None:
        self._changed.clear()
        try:
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()
        except TimeoutError:
            return

    async def _ring(self, timer: Timer) -> None:
        """Announces the timer until a client plays it, for at most RING_S."""
        text = _announcement(timer)
        try:
            async with asyncio.timeout(RING_S):
                while timer.id in self._timers:
                    if await self._announce(timer.conversation_id, text):
                        break
                    await asyncio.sleep(RETRY_S)
        except TimeoutError:
            pass  # nobody came back
        self.cancel(timer)

    async def _announce(self, conversation_id: str, text: str) -> bool:
        try:
            return await self._announcer.announce(conversation_id, text)
        except EarshotError as error:
            logger.warning("a timer could not be announced: %s", error.code)
            return False

    def _put(self, timer: Timer) -> None:
        self._timers[timer.id] = timer
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._home.touch()


def is_of(timer: Timer, speaker: SpeakerMatch | None) -> bool:
    """Whether this person started the timer. speaker: None for a guest, who owns no timer."""
    return speaker is not None and timer.speaker is not None and timer.speaker.id == speaker.id


def _announcement(timer: Timer) -> str:
    texts = ANNOUNCEMENTS.get(timer.language, ANNOUNCEMENTS["en"])
    text = texts[1].format(name=timer.name) if timer.name else texts[0]
    if timer.speaker is None:
        return text
    return f"{timer.speaker.name}, {text[0].lower()}{text[1:]}"


def _is_waiting(timer: Timer) -> bool:
    return timer.paused_s is None and not timer.is_ringing


def _check_duration(duration_s: float) -> None:
    if not 1 <= duration_s <= MAX_TIMER_S:
        raise ToolError(
            f"a timer runs from 1 second to {MAX_TIMER_S / 3600:g} hours",
            code="bad_duration",
        )


def _state(timer: Timer, now: float) -> TimerState:
    state: Literal["running", "paused", "ringing"] = "running"
    if timer.is_ringing:
        state = "ringing"
    elif timer.paused_s is not None:
        state = "paused"
    return TimerState(
        id=timer.id,
        name=timer.name,
        conversation_id=timer.conversation_id,
        duration_s=round(timer.duration_s, 1),
        remaining_s=round(timer.remaining_s(now), 1),
        state=state,
    )
