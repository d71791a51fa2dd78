"""Measures the delay of audio behind aiortc's own jitter buffer and behind Earshot's.

Two aiortc peers run in one process. One sends a beep every 200 ms, and the time until the other
receives it is measured. Each round runs both buffers one after the other, so that a busy machine
disturbs both.

    python -m bench.voice.jitter --rounds 5
"""

import argparse
import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median

import numpy as np

from core.audio import AudioFrame
from media.codecs.opus import OPUS_RATE_HZ
from media.webrtc.loopback import loopback

BEEP_EVERY_TICKS = 10
"""200 ms, in ticks of 20 ms. After a loss aiortc's delay is longer than that, so a beep must be
identified by its tone."""

TONES_HZ = (500, 900, 1300, 1700, 2100, 2500, 2900, 3300)
"Tones of the beeps, in turn. Eight tones identify a beep that is up to 1.6 s late."

BEEP_LEVEL = 3000
"Least level of a beep: far above what is left of the previous beep."

SETTLE_TICKS = 20
"""Ticks that are not measured: beeps in the first 400 ms wait for the connection, not for the
buffer."""

PHASE_TICKS = 100
"Length of a phase: 2 s."

PHASES = 3
"Number of phases: no loss, one lost packet, random loss."

LAST_TICKS = 25
"Half a second after the last phase, in which a slow buffer delivers its last beeps."


@dataclass(slots=True)
class Delays:
    """Milliseconds from beep in to beep out, in each phase of a run."""

    clean: list[float] = field(default_factory=list)
    after_one_loss: list[float] = field(default_factory=list)
    after_random_loss: list[float] = field(default_factory=list)
    mismatched: int = 0
    "Number of received beeps that match no sent beep, or came out of order."

    def extend(self, other: "Delays") -> None:
        """Adds the values of another run."""
        self.clean += other.clean
        self.after_one_loss += other.after_one_loss
        self.after_random_loss += other.after_random_loss
        self.mismatched += other.mismatched


@dataclass(slots=True)
class Beeper:
    """Microphone that beeps every BEEP_EVERY_TICKS, and records the times of its beeps."""

    clock: Callable[[], float]
    "Time in seconds."
    phases: int = PHASES
    tick: int = 0
    "Number of calls of `pull` so far; one call per 20 ms."
    done: asyncio.Event = field(default_factory=asyncio.Event)
    "Set after the last phase."
    sent: dict[int, float] = field(default_factory=dict)
    "Number of a beep -> time in seconds at which it was sent."

    def pull(self) -> AudioFrame | None:
        """Returns a beep every BEEP_EVERY_TICKS calls, else None."""
        tick = self.tick
        self.tick += 1
        if self.tick == SETTLE_TICKS + self.phases * PHASE_TICKS + LAST_TICKS:
            self.done.set()
        if tick % BEEP_EVERY_TICKS:
            return None
        number = tick // BEEP_EVERY_TICKS
        self.sent[number] = self.clock()
        time_s = np.arange(OPUS_RATE_HZ // 50) / OPUS_RATE_HZ
        tone = np.sin(2 * np.pi * TONES_HZ[number % len(TONES_HZ)] * time_s) * 12_000
        return AudioFrame(tone.astype(np.int16), OPUS_RATE_HZ, 0)


@dataclass(slots=True)
class BeepListener:
    """Listener that records which beep came out, and when."""

    clock: Callable[[], float]
    beeps: list[tuple[int, float]] = field(default_factory=list)
    "(index in TONES_HZ, time in seconds) of each beep."
    _quiet: bool = True

    def on_frame(self, frame: AudioFrame) -> None:
        """Records a beep if one begins in this frame."""
        pcm = frame.pcm.astype(np.float32)
        is_loud = bool(np.abs(pcm).max() > BEEP_LEVEL)
        if is_loud and self._quiet:
            spectrum = np.abs(np.fft.rfft(pcm))
            peak_hz = float(spectrum.argmax()) * frame.rate_hz / len(pcm)
            tone = min(range(len(TONES_HZ)), key=lambda i: abs(TONES_HZ[i] - peak_hz))
            self.beeps.append((tone, self.clock()))
        self._quiet = not is_loud


class LossPattern:
    """Drops one packet, later 10 % of the packets, but never a beep."""

    def __init__(self, beeper: Beeper, seed: int) -> None:
        self._beeper = beeper
        self._random = random.Random(seed)
        self._lost_one = False

    def is_lost(self) -> bool:
        """Decides about the packet of the current tick."""
        tick = self._beeper.tick
        if tick < SETTLE_TICKS + PHASE_TICKS or tick % BEEP_EVERY_TICKS == 1:
            return False
        if not self._lost_one:
            self._lost_one = True
            return True
        in_random_phase = tick >= SETTLE_TICKS + 2 * PHASE_TICKS
        # one in nine of the packets without a beep: 10 % of all
        return in_random_phase and self._random.random() < 1 / 9


async def measure(depth: int | None, seed: int = 0, *, phases: int = PHASES) -> Delays:
    """Runs the first `phases` phases: no loss, one loss, random loss.

    depth: depth of Earshot's jitter buffer in packets; None: aiortc's own buffer.
    """
    clock = asyncio.get_running_loop().time
    beeper, listener = Beeper(clock, phases), BeepListener(clock)
    pattern = LossPattern(beeper, seed)
    await loopback(
        beeper.pull, listener.on_frame, beeper.done, depth=depth, is_lost=pattern.is_lost
    )
    return delays(beeper.sent, listener.beeps)


def delays(sent: dict[int, float], received: list[tuple[int, float]]) -> Delays:
    """Matches each received beep to the latest sent beep of the same tone.

    sent: `Beeper.sent`. received: `BeepListener.beeps`.
    """
    result = Delays()
    last = -1
    for tone, at in received:
        candidates = [n for n, t in sent.items() if n % len(TONES_HZ) == tone and t <= at]
        if not candidates or max(candidates) <= last:
            result.mismatched += 1
            continue
        last = max(candidates)
        phase = last * BEEP_EVERY_TICKS - SETTLE_TICKS
        delay_ms = (at - sent[last]) * 1000
        if 0 <= phase < PHASE_TICKS:
            result.clean.append(delay_ms)
        # aiortc's buffer stalls for 320 ms after the loss, so the first two beeps are not counted.
        elif PHASE_TICKS + 2 * BEEP_EVERY_TICKS <= phase < 2 * PHASE_TICKS:
            result.after_one_loss.append(delay_ms)
        elif 2 * PHASE_TICKS <= phase < 3 * PHASE_TICKS:
            result.after_random_loss.append(delay_ms)
    return result


async def compare(rounds: int) -> dict[str, Delays]:
    """Runs aiortc's buffer and Earshot's in turn, `rounds` times."""
    buffers = {"aiortc 1.16": None, "Earshot, depth 1": 1, "Earshot, depth 2": 2}
    results = {name: Delays() for name in buffers}
    for seed in range(rounds):
        for name, depth in buffers.items():
            results[name].extend(await measure(depth, seed))
    return results


def table(results: dict[str, Delays]) -> str:
    """Returns Markdown: median (range) in ms, and the number of beeps."""

    def cell(values: list[float]) -> str:
        if not values:
            return "no beep"
        return f"{median(values):.0f} ({min(values):.0f}-{max(values):.0f}), n={len(values)}"

    lines = [
        "| buffer | before loss, ms | after one loss, ms | at 10 % random loss, ms | mismatched |",
        "|---|---|---|---|---|",
    ]
    for name, found in results.items():
        phases = (found.clean, found.after_one_loss, found.after_random_loss)
        lines.append(f"| {name} | {' | '.join(map(cell, phases))} | {found.mismatched} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--rounds", type=int, default=5, help="runs per buffer, 8 s each (%(default)s)"
    )
    arguments = parser.parse_args()
    print(table(asyncio.run(compare(arguments.rounds))))


if __name__ == "__main__":
    main()
