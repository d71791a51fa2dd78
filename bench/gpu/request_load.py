"""Load of utterances that arrive while others are decoded, and the latency of each with its waiting
time."""

import math
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from threading import Event, Lock
from typing import Any

import numpy as np

from bench.gpu.whisper_torch import open_engine
from core.audio import ASR_RATE_HZ
from engines.asr.whisper_torch.network.device import DeviceModel
from engines.base import AsrItem, AsrOptions, AsrResult

PARTIAL_INTERVAL_S = 0.5
"Time between two partials of a speaker."

END_TIMEOUT_S = 60.0
"Longest wait for the results after the last request."

_NOISE = np.random.default_rng(0).normal(0, 3000, 10 * ASR_RATE_HZ).astype(np.int16)


@dataclass(frozen=True, slots=True)
class RequestArrival:
    """One request of the load."""

    due_s: float
    "Time since the beginning."
    audio_s: float
    is_final: bool = True


def at_random(per_s: float, duration_s: float, seed: int = 0) -> list[RequestArrival]:
    """Makes whole utterances of 2 to 8 s, as independent speakers would send them."""
    rng, now_s, found = random.Random(seed), 0.0, list[RequestArrival]()
    while now_s < duration_s:
        now_s += rng.expovariate(per_s)
        found.append(RequestArrival(now_s, rng.uniform(2, 8)))
    return found


def streams(count: int, duration_s: float, seed: int = 0) -> list[RequestArrival]:
    """Makes speakers who talk all the time, in utterances of 2 to 8 s.

    Each utterance has a partial of its audio so far every 500 ms, and a final.
    """
    rng, found = random.Random(seed), list[RequestArrival]()
    for _ in range(count):
        begin_s = rng.uniform(0, min(8, duration_s))
        while begin_s < duration_s:
            audio_s = rng.uniform(2, 8)
            partials = range(1, int(audio_s / PARTIAL_INTERVAL_S))
            found += [
                RequestArrival(begin_s + PARTIAL_INTERVAL_S * n, PARTIAL_INTERVAL_S * n, False)
                for n in partials
            ]
            begin_s += audio_s
            found.append(RequestArrival(begin_s, audio_s))
    return sorted(found, key=lambda arrival: arrival.due_s)


def latencies_ms(
    model: DeviceModel, arrivals: Sequence[RequestArrival]
) -> tuple[Sequence[float], Sequence[float]]:
    """Returns the latencies of partials and of finals, each from its due time to its result.

    Raises RuntimeError when requests have no answer.
    """
    engine = open_engine(model)
    recorder = _LatencyRecorder(len(arrivals))
    try:
        for audio_s in (2, 5, 8):  # warm-up: work that is done once belongs to no request
            engine.decode([_item(audio_s)])
        began_s = time.perf_counter()
        for arrival in arrivals:
            due_s = began_s + arrival.due_s
            time.sleep(max(0.0, due_s - time.perf_counter()))
            engine.begin([_item(arrival.audio_s)], recorder.callback(due_s, arrival.is_final))
        is_over = recorder.over.wait(END_TIMEOUT_S + time.perf_counter() - began_s)
    finally:
        engine.close()
    if not is_over or recorder.failed:
        raise RuntimeError(f"{recorder.left} of {len(arrivals)} have no answer: {recorder.failed}")
    return recorder.times_ms[False], recorder.times_ms[True]


def percentile(values: Sequence[float], share: float) -> float:
    """Returns the value that `share` (0 to 1) of the values do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, math.ceil(share * len(ordered)) - 1)]


def _item(audio_s: float) -> AsrItem:
    return AsrItem("noise", _NOISE[: round(ASR_RATE_HZ * audio_s)], True, AsrOptions("en"))


class _LatencyRecorder:
    """Latencies, written by the engine's thread."""

    def __init__(self, count: int) -> None:
        self.left = count
        self.failed: Exception | None = None
        self.times_ms: dict[bool, list[float]] = {False: [], True: []}
        "Latencies by whether the request was a final."
        self.over = Event()
        self._lock = Lock()

    def callback(self, since_s: float, is_final: bool) -> Any:
        def done(results: Sequence[AsrResult] | Exception) -> None:
            took_ms = 1000 * (time.perf_counter() - since_s)
            with self._lock:
                self.left -= 1
                if isinstance(results, Exception):
                    self.failed = results
                elif not results[0].text:
                    self.failed = RuntimeError("an utterance without text")
                else:
                    self.times_ms[is_final].append(took_ms)
                if not self.left or self.failed:
                    self.over.set()

        return done
