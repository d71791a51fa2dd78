"""WebRTC's echo canceller (AEC3) for one session, and a judge of what it achieves."""

from collections import deque
from enum import Enum

import numpy as np
from pywebrtc_audio import EchoCanceller as WebRtcCanceller

from core.audio import ASR_RATE_HZ, Pcm, ms_to_samples, samples_to_ms
from media.pcm import SILENCE_DBFS, dbfs
from media.processing.echo_delay import FAR, NEAR, EchoDelay, estimate_delay
from media.processing.echo_reference import ECHO_TAIL, EchoReference

# The last crumbs of an echo: what a canceller leaves of a room's tail sounds like speech to a VAD.
#
# A crumb is quieter than the echo could still be at that moment; a person who interrupts is louder,
# and once heard is heard on.

IS_ECHO_DB = 20
"What the canceller takes away so much of was echo, and tells its level."
CRUMB_DB = 6
"What is left of an echo and this far below it is a crumb."
DECAY_DB_PER_S = 60
"A room of 1 s reverberation; most die away faster."
OPEN_DB = 0
"What is louder than the echo could be is somebody,"
OPEN_MS = 300
"and so are the quiet ends of their words."
CLOSED = 0.1
"Gain on a crumb: down to the noise of a quiet room, not to a silence that sounds cut."


class ResidualEchoGate:
    """One microphone's; blocks of some 20 ms."""

    def __init__(self) -> None:
        self._echo_db = SILENCE_DBFS
        self._gain = 1.0
        self._open_ms = 0.0

    def push(self, heard: Pcm, cleaned: Pcm) -> Pcm:
        """`cleaned` with its crumbs turned down. Both of the same moment and length."""
        block_s = len(heard) / ASR_RATE_HZ
        self._echo_db -= DECAY_DB_PER_S * block_s
        self._open_ms -= 1000 * block_s
        heard_db, cleaned_db = dbfs(heard), dbfs(cleaned)
        if heard_db - cleaned_db > IS_ECHO_DB:
            self._echo_db = max(self._echo_db, heard_db)
        if cleaned_db >= self._echo_db + OPEN_DB:
            self._open_ms = OPEN_MS
        before = self._gain
        is_crumb = self._open_ms <= 0 and cleaned_db < self._echo_db - CRUMB_DB
        self._gain = CLOSED if is_crumb else 1.0
        if self._gain == before == 1:
            return cleaned
        return (cleaned * np.linspace(before, self._gain, len(cleaned))).astype(np.int16)


TAIL = ms_to_samples(1200, ASR_RATE_HZ)
"After the last sound the canceller goes on: its longest delay and a room's reverberation."
BLOCK = ASR_RATE_HZ // 100
"The library works on 10 ms."
LAG = BLOCK
"""The microphone is held back by this much: the library loses an echo that comes in the moment of
playing, as it may seem to where the clocks are a little off."""
JUDGED_EVERY = ms_to_samples(500, ASR_RATE_HZ)
ACTIVE_SHARE = 0.6
"Of the last second played must be sound before its absence in the microphone says anything."
IS_ECHO = 15.0
"Sharpness of a match that is no accident."
IS_LEAK = 12.0
"The same in cleaned audio: there it should have nothing left, and is heard where it has."
LEAK_SHARE = 0.5
"Of the sharpness before the canceller: less is left of an echo that it follows."
LEAKS = 2
"Judgements in a row: a second."
MISSES = 2
"The same for no echo at all,"
MISSES_AFTER_ECHO = 6
"and where there was one: a person may only have been louder."
JUMP = ms_to_samples(10, ASR_RATE_HZ)
"The library follows a delay that grows; of one that shrinks by more it is told to begin anew."
REACH = ms_to_samples(400, ASR_RATE_HZ)
"The library finds delays up to 0.5 s by itself; for longer ones the reference is held back."
HEADROOM = ms_to_samples(100, ASR_RATE_HZ)
"Left for it to find, as the delay may shrink."


class EchoPathState(Enum):
    """How the speaker reaches the microphone, as far as is known."""

    UNKNOWN = "unknown"
    "Nothing was played yet, or not enough. What is played is cancelled."
    NONE = "none"
    "Headphones, or a client that cancels by itself: what is heard passes untouched."
    CANCELLED = "cancelled"
    LEAKING = "leaking"
    "The canceller does not keep up: half duplex until it does."


class EchoCanceller:
    """An `Echo` (media/processing/echo.py): AEC3, delays beyond its reach, half duplex where it
    fails."""

    def __init__(self, rate_hz: int = ASR_RATE_HZ, *, is_paced: bool = True) -> None:
        """`rate_hz` of what is played; `is_paced`: it is sent at the pace it is played at."""
        self._reference = EchoReference(rate_hz, is_paced=is_paced)
        self._canceller = _Aec3Adapter()
        self._gate = ResidualEchoGate()
        self._heard: deque[Pcm] = deque()
        self._cleaned: deque[Pcm] = deque()
        self._since_judged = 0
        self._misses = self._leaks = 0
        self._held_back = 0
        "Samples by which the reference is read later than it was sent."
        self.path = EchoPathState.UNKNOWN
        self._delay: int | None = None
        self.erle_db = 0.0
        "How much quieter the microphone became in the last judged second."

    @property
    def delay_ms(self) -> float | None:
        """From sending to hearing; None while no echo was found."""
        return None if self._delay is None else samples_to_ms(self._delay, ASR_RATE_HZ)

    def play(self, pcm: Pcm, at: int) -> None:
        """See `Echo.play`."""
        self._reference.write(pcm, at)

    def cut(self, at: int) -> None:
        """See `Echo.cut`."""
        self._reference.cut(at)

    def clean(self, pcm: Pcm, at: int) -> Pcm:
        """See `Echo.clean`."""
        end = at + len(pcm)
        if not self._reference.sounds(at - self._held_back - TAIL, end):
            self._rest()
            return pcm
        far = self._reference.read(at - self._held_back, end - self._held_back)
        cleaned = self._gate.push(pcm, self._canceller.process(pcm, far))
        self._remember(pcm, cleaned)
        if self._since_judged >= JUDGED_EVERY and sum(map(len, self._heard)) >= NEAR:
            self._since_judged = 0
            self._judge(end)
        if self.path is EchoPathState.NONE:
            return pcm
        return np.zeros_like(pcm) if self.path is EchoPathState.LEAKING else cleaned

    def is_sounding(self, at: int) -> bool:
        """See `Echo.is_sounding`."""
        is_there = self.path is not EchoPathState.NONE
        return is_there and self._reference.sounds(at - self._held_back - ECHO_TAIL, at + 1)

    def _rest(self) -> None:
        if self._heard:
            self._heard.clear()
            self._cleaned.clear()
            self._canceller.drop_rest()
            self._since_judged = 0

    def _remember(self, heard: Pcm, cleaned: Pcm) -> None:
        self._since_judged += len(heard)
        self._heard.append(heard)
        self._cleaned.append(cleaned)
        while sum(map(len, self._heard)) - len(self._heard[0]) >= NEAR:
            self._heard.popleft()
            self._cleaned.popleft()

    def _judge(self, now: int) -> None:
        """Look for the echo in the last second: before the canceller, and if there, behind it."""
        far = self._reference.read(now - FAR, now)
        heard, cleaned = (np.concatenate(one)[-NEAR:] for one in (self._heard, self._cleaned))
        found = estimate_delay(far, heard)
        if found.sharpness < IS_ECHO:
            sounding = int(np.count_nonzero(far[-NEAR:]))
            self._missed(is_telling=sounding >= ACTIVE_SHARE * NEAR)
            return
        self._misses = 0
        self.erle_db = dbfs(heard) - dbfs(cleaned)
        if self._follow(found):
            return
        left = estimate_delay(far, cleaned).sharpness
        is_leak = left >= max(IS_LEAK, LEAK_SHARE * found.sharpness)
        self._leaks = self._leaks + 1 if is_leak else 0
        if not is_leak:
            self.path = EchoPathState.CANCELLED
        elif self._leaks >= LEAKS:
            self.path = EchoPathState.LEAKING

    def _missed(self, *, is_telling: bool) -> None:
        self._misses = self._misses + 1 if is_telling else 0
        had_echo = self.path in {EchoPathState.CANCELLED, EchoPathState.LEAKING}
        if self._misses >= (MISSES_AFTER_ECHO if had_echo else MISSES):
            self.path, self._leaks = EchoPathState.NONE, 0

    def _follow(self, found: EchoDelay) -> bool:
        """Hold the reference back where the delay is out of the library's reach; begin anew."""
        known, self._delay = self._delay, found.delay
        has_shrunk = known is not None and found.delay < known - JUMP
        if self._held_back <= found.delay <= self._held_back + REACH and not has_shrunk:
            return False
        self._held_back = max(0, found.delay - HEADROOM) if found.delay > REACH else 0
        self._canceller = _Aec3Adapter()
        self.path, self._leaks = EchoPathState.LEAKING, 0
        return True


class _Aec3Adapter:
    """The library on pieces of any length. It hears 10 ms late, so does who listens to it."""

    def __init__(self) -> None:
        self._library = WebRtcCanceller(ASR_RATE_HZ)
        self.drop_rest()

    def drop_rest(self) -> None:
        """The stream is interrupted."""
        self._far = self._ready = np.zeros(0, np.int16)
        self._near = np.zeros(LAG, np.int16)

    def process(self, near: Pcm, far: Pcm) -> Pcm:
        """As many samples as there are in `near`; other than whole blocks come 10 ms later yet."""
        self._near = np.concatenate([self._near, near])
        self._far = np.concatenate([self._far, far])
        whole = len(self._far) - len(self._far) % BLOCK
        cleaned = self._library.process(self._near[:whole], self._far[:whole])
        self._near, self._far = self._near[whole:], self._far[whole:]
        self._ready = np.concatenate([self._ready, cleaned])
        if len(self._ready) < len(near):
            self._ready = np.concatenate([np.zeros(BLOCK, np.int16), self._ready])
        out, self._ready = self._ready[: len(near)], self._ready[len(near) :]
        return out
