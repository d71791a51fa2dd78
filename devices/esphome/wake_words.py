"""Wake words of one satellite: takes part in their arbitration."""

from collections.abc import Callable, Iterable

import numpy as np

from devices.esphome.conversation_run import ConversationRun, RunEnd
from devices.fleet.directory import Device
from devices.fleet.wake_arbiter import ReportedWakeWord, WakeArbiter, plain_wake_word


class SatelliteWakeWords:
    """Implements `WakeContender` for a satellite."""

    connects_when_woken = False

    def __init__(self, arbiter: WakeArbiter, device: Device, can_start: Callable[[], bool]) -> None:
        """can_start: returns True while the device is idle and could begin a run."""
        self.contender_area = device.area
        self._arbiter, self._device_id, self._can_start = arbiter, device.id, can_start
        self._active: frozenset[str] = frozenset()
        "Wake words that it listens for; empty: not known."
        self._reports: dict[ConversationRun, ReportedWakeWord] = {}
        "Wake words of the runs that began with one."

    @property
    def contender_id(self) -> str:
        return self._device_id

    def listens_for(self, wake_word: str) -> bool:
        return self._can_start() and (not self._active or wake_word in self._active)

    def set_active(self, wake_words: Iterable[str]) -> None:
        """Notes the active wake words, by their names or words."""
        self._active = frozenset(plain_wake_word(word) for word in wake_words)

    def move(self, area: str) -> None:
        """Notes that a person has moved the device to another room."""
        if area != self.contender_area:
            self._arbiter.withdraw(self)
            self.contender_area = area

    def report(self, run: ConversationRun, wake_word: str) -> None:
        """Notes that the wake word began this run."""
        self._reports[run] = self._arbiter.report(self, wake_word, is_measured=True)

    def hear(self, run: ConversationRun, data: bytes) -> None:
        """Takes the sound after the wake word, s16le at 16 kHz."""
        if run in self._reports:
            pcm = np.frombuffer(data[: len(data) // 2 * 2], "<i2").astype(np.int16, copy=False)
            self._arbiter.hear(self, pcm)

    async def arbitrate(self, run: ConversationRun) -> RunEnd | None:
        """Waits for the decision which device answers the wake word; the run keeps what the device
        hears meanwhile. Returns None if the run goes on, else its outcome."""
        reported = self._reports.get(run)
        if reported is not None and not await reported.is_won() and run.end is None:
            run.lose()
        if run.end in ("aborted", "replaced"):
            self._arbiter.give_up(self)
        return run.end

    def give_up(self) -> None:
        """Lets another device of the room be woken: this one cannot answer."""
        self._arbiter.give_up(self)

    def forget(self, run: ConversationRun) -> None:
        """Forgets a run that is over."""
        self._reports.pop(run, None)
