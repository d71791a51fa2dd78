"""Echo canceller of one session: WebRTC's AEC3, and a check of what it achieves."""

from collections import deque
from enum import Enum

import numpy as np
from pywebrtc_audio import EchoCanceller as WebRtcCanceller

from core.audio import ASR_RATE_HZ, Pcm, ms_to_samples, samples_to_ms
from media.pcm import SILENCE_DBFS, dbfs
from media.processing.echo_delay import FAR_SAMPLES, NEAR_SAMPLES, EchoDelay, estimate_delay
from media.processing.echo_reference import ECHO_TAIL_SAMPLES, EchoReference

# Residual echo: what a canceller leaves of a room's reverberation sounds like speech to a VAD.
#
# Residual echo is quieter than the echo could still be at that moment. A person who interrupts is
# louder, and after that the gate stays open for a while.

ECHO_ATTENUATION_DB = 20
"Attenuation by the canceller, in dB, from which a block counts as echo. Its level is then known."
RESIDUAL_ECHO_DB = 6
"Residual echo is at least this much quieter than the echo could be, in dB."
DECAY_DB_PER_S = 60
"Assumed decay of an echo: a room with 1 s reverberation. Most rooms are faster."
OPEN_DB = 0
"Level above the possible echo, in dB, from which a sound counts as a person."
OPEN_MS = 300
"Time after such a sound in which nothing is muted, for the quiet ends of words."
CLOSED_GAIN = 0.1
"Gain on residual echo. It leaves the noise of a quiet room; complete silence would sound cut."


class ResidualEchoGate:
    """Turns down the residual echo that the canceller leaves. One per microphone, for blocks of
    some 20 ms."""

    def __init__(self) -> None:
        self._echo_db = SILENCE_DBFS
        self._gain = 1.0
        self._open_ms = 0.0

    def push(self, microphone: Pcm, cleaned: Pcm) -> Pcm:
        """Returns `cleaned` with its residual echo turned down.

        `microphone`: samples before the canceller. `cleaned`: its output for the same moment, of
        the same length; both int16 at 16 kHz.
        """
        block_s = len(microphone) / ASR_RATE_HZ
        self._echo_db -= DECAY_DB_PER_S * block_s
        self._open_ms -= 1000 * block_s
        heard_db, cleaned_db = dbfs(microphone), dbfs(cleaned)
        if heard_db - cleaned_db > ECHO_ATTENUATION_DB:
            self._echo_db = max(self._echo_db, heard_db)
        if cleaned_db >= self._echo_db + OPEN_DB:
            self._open_ms = OPEN_MS
        before = self._gain
        is_residual_echo = self._open_ms <= 0 and cleaned_db < self._echo_db - RESIDUAL_ECHO_DB
        self._gain = CLOSED_GAIN if is_residual_echo else 1.0
        if self._gain == before == 1:
            return cleaned
        # A ramp from the old gain to the new one avoids a click.
        return (cleaned * np.linspace(before, self._gain, len(cleaned))).astype(np.int16)


TAIL_SAMPLES = ms_to_samples(1200, ASR_RATE_HZ)
"""Samples for which the canceller keeps running after the last sound: its longest delay and a
room's reverberation."""
BLOCK_SAMPLES = ASR_RATE_HZ // 100
"Samples that the library takes at once: 10 ms."
LAG_SAMPLES = BLOCK_SAMPLES
"""Samples by which the microphone is held back. The library misses an echo that arrives at the
moment of playing, which may seem to happen where the clocks are a little off."""
JUDGEMENT_INTERVAL_SAMPLES = ms_to_samples(500, ASR_RATE_HZ)
"Samples between two judgements of the result."
ACTIVE_SHARE = 0.6
"Share of the last second that must have been played sound, before a missing echo means anything."
ECHO_SHARPNESS = 15.0
"Sharpness of a match from which it counts as an echo, not as an accident."
LEAK_SHARPNESS = 12.0
"The same for the cleaned audio. A lower value is enough there, where no echo should be left."
LEAK_SHARE = 0.5
"""Sharpness after the canceller, relative to that before it, from which an echo counts as a leak.
If the canceller follows the echo, less than this is left."""
LEAKS = 2
"Judgements in a row with a leak, after which the path counts as leaking: one second."
MISSES = 2
"Judgements in a row without an echo, after which the path counts as free of echo."
MISSES_AFTER_ECHO = 6
"The same after an echo was found: a person may only have been louder."
JUMP_SAMPLES = ms_to_samples(10, ASR_RATE_HZ)
"""Samples by which the delay may shrink. The library follows a delay that grows; if it shrinks by
more than this, the library is started again."""
REACH_SAMPLES = ms_to_samples(400, ASR_RATE_HZ)
"""Delay in samples up to which the library needs no help. It finds delays up to 0.5 s by itself;
for longer ones the reference is held back."""
HEADROOM_SAMPLES = ms_to_samples(100, ASR_RATE_HZ)
"Samples of delay that are left for the library to find, as the delay may shrink."


class EchoPathState(Enum):
    """State of the echo path from the speaker to the microphone, as far as is known."""

    UNKNOWN = "unknown"
    "Nothing was played yet, or not enough. Echo is cancelled."
    NONE = "none"
    "There is no echo: headphones, or a client that cancels by itself. Audio passes unchanged."
    CANCELLED = "cancelled"
    "There is an echo, and the canceller removes it."
    LEAKING = "leaking"
    "The canceller fails. Half duplex until it works again."


class EchoCanceller:
    """An `EchoControl` (media/processing/echo.py) with AEC3. It also handles delays beyond AEC3's
    reach, and falls back to half duplex where AEC3 fails."""

    def __init__(self, rate_hz: int = ASR_RATE_HZ, *, is_paced: bool = True) -> None:
        """Creates the canceller. `rate_hz`: rate of what is played. `is_paced`: audio is sent at
        the pace at which it is played."""
        self._reference = EchoReference(rate_hz, is_paced=is_paced)
        self._canceller = _Aec3Adapter()
        self._gate = ResidualEchoGate()
        self._microphone: deque[Pcm] = deque()
        self._cleaned: deque[Pcm] = deque()
        self._samples_since_judgement = 0
        self._misses = self._leaks = 0
        self._held_back = 0
        "Samples by which the reference is read later than it was sent."
        self.path = EchoPathState.UNKNOWN
        self._delay: int | None = None
        "Delay of the last echo that was found, in samples."
        self.erle_db = 0.0
        """Echo return loss enhancement: by how many dB the microphone became quieter in the last
        judged second."""

    @property
    def delay_ms(self) -> float | None:
        """Time from sending until the echo arrives, in ms; None while no echo was found."""
        return None if self._delay is None else samples_to_ms(self._delay, ASR_RATE_HZ)

    def play(self, pcm: Pcm, position: int) -> None:
        """See `EchoControl.play`."""
        self._reference.write(pcm, position)

    def cut(self, position: int) -> None:
        """See `EchoControl.cut`."""
        self._reference.cut(position)

    def clean(self, pcm: Pcm, position: int) -> Pcm:
        """See `EchoControl.clean`."""
        end = position + len(pcm)
        if not self._reference.sounds(position - self._held_back - TAIL_SAMPLES, end):
            self._clear_comparison()
            return pcm
        far = self._reference.read(position - self._held_back, end - self._held_back)
        cleaned = self._gate.push(pcm, self._canceller.process(pcm, far))
        self._remember(pcm, cleaned)
        if (
            self._samples_since_judgement >= JUDGEMENT_INTERVAL_SAMPLES
            and sum(map(len, self._microphone)) >= NEAR_SAMPLES
        ):
            self._samples_since_judgement = 0
            self._judge(end)
        if self.path is EchoPathState.NONE:  # the canceller still runs, in case an echo comes
            return pcm
        return np.zeros_like(pcm) if self.path is EchoPathState.LEAKING else cleaned

    def is_sounding(self, position: int) -> bool:
        """See `EchoControl.is_sounding`."""
        may_echo = self.path is not EchoPathState.NONE
        return may_echo and self._reference.sounds(
            position - self._held_back - ECHO_TAIL_SAMPLES, position + 1
        )

    def _clear_comparison(self) -> None:
        """Clears what is compared, because nothing has sounded for TAIL_SAMPLES."""
        if self._microphone:
            self._microphone.clear()
            self._cleaned.clear()
            self._canceller.drop_rest()
            self._samples_since_judgement = 0

    def _remember(self, microphone: Pcm, cleaned: Pcm) -> None:
        """Keeps the last second before and after the canceller."""
        self._samples_since_judgement += len(microphone)
        self._microphone.append(microphone)
        self._cleaned.append(cleaned)
        while sum(map(len, self._microphone)) - len(self._microphone[0]) >= NEAR_SAMPLES:
            self._microphone.popleft()
            self._cleaned.popleft()

    def _judge(self, now: int) -> None:
        """Looks for the echo in the last second: before the canceller and, if it is there, after
        it."""
        far = self._reference.read(now - FAR_SAMPLES, now)
        heard, cleaned = (
            np.concatenate(frames)[-NEAR_SAMPLES:] for frames in (self._microphone, self._cleaned)
        )
        found = estimate_delay(far, heard)
        if found.sharpness < ECHO_SHARPNESS:
            sounding = int(np.count_nonzero(far[-NEAR_SAMPLES:]))
            self._count_miss(is_conclusive=sounding >= ACTIVE_SHARE * NEAR_SAMPLES)
            return
        self._misses = 0
        self.erle_db = dbfs(heard) - dbfs(cleaned)
        if self._adopt_delay(found):
            return
        residual = estimate_delay(far, cleaned).sharpness
        # Correlation, not level, decides: a person who speaks is loud in `cleaned`, too.
        is_leak = residual >= max(LEAK_SHARPNESS, LEAK_SHARE * found.sharpness)
        self._leaks = self._leaks + 1 if is_leak else 0
        if not is_leak:
            self.path = EchoPathState.CANCELLED
        elif self._leaks >= LEAKS:
            self.path = EchoPathState.LEAKING

    def _count_miss(self, *, is_conclusive: bool) -> None:
        """Counts a judgement without an echo. `is_conclusive`: enough was played for that to mean
        something."""
        self._misses = self._misses + 1 if is_conclusive else 0
        had_echo = self.path in {EchoPathState.CANCELLED, EchoPathState.LEAKING}
        if self._misses >= (MISSES_AFTER_ECHO if had_echo else MISSES):
            self.path, self._leaks = EchoPathState.NONE, 0

    def _adopt_delay(self, found: EchoDelay) -> bool:
        """Holds the reference back if the delay is outside the library's reach, and starts the
        library again. True if it did."""
        previous, self._delay = self._delay, found.delay
        has_shrunk = previous is not None and found.delay < previous - JUMP_SAMPLES
        if self._held_back <= found.delay <= self._held_back + REACH_SAMPLES and not has_shrunk:
            return False
        self._held_back = (
            max(0, found.delay - HEADROOM_SAMPLES) if found.delay > REACH_SAMPLES else 0
        )
        self._canceller = _Aec3Adapter()
        # Half duplex until the new canceller has adapted: the next judgement decides.
        self.path, self._leaks = EchoPathState.LEAKING, 0
        return True


class _Aec3Adapter:
    """Runs the library on pieces of any length. It holds the microphone back by LAG_SAMPLES, so
    its output is 10 ms late."""

    def __init__(self) -> None:
        self._library = WebRtcCanceller(ASR_RATE_HZ)
        self.drop_rest()

    def drop_rest(self) -> None:
        """Drops what is buffered, because the stream is interrupted."""
        self._far = self._ready = np.zeros(0, np.int16)
        self._near = np.zeros(LAG_SAMPLES, np.int16)

    def process(self, near: Pcm, far: Pcm) -> Pcm:
        """Returns as many cleaned samples as there are in `near`.

        If the pieces are not whole blocks, the output is another 10 ms late. `near`: the
        microphone. `far`: what is played; both int16 at 16 kHz.
        """
        self._near = np.concatenate([self._near, near])
        self._far = np.concatenate([self._far, far])
        whole = len(self._far) - len(self._far) % BLOCK_SAMPLES
        cleaned = self._library.process(self._near[:whole], self._far[:whole])
        self._near, self._far = self._near[whole:], self._far[whole:]
        self._ready = np.concatenate([self._ready, cleaned])
        if len(self._ready) < len(near):
            self._ready = np.concatenate([np.zeros(BLOCK_SAMPLES, np.int16), self._ready])
        out, self._ready = self._ready[: len(near)], self._ready[len(near) :]
        return out
