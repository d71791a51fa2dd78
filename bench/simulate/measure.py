"""Measures the costs of turns on this machine: the recogniser alone, one call, several calls."""

import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, fields
from math import log, sqrt
from pathlib import Path
from statistics import fmean, median, pstdev
from tempfile import TemporaryDirectory
from time import perf_counter, process_time

import numpy as np
import psutil

from bench.client.conversation import TAIL_S
from bench.client.http import Address
from bench.client.microphone import RATE_HZ
from bench.client.realtime import SessionRequest
from bench.measurements.resources import metrics, use_of
from bench.server.own_server import OwnServer, own_server
from bench.server.stub_engines.scheduled_asr import NullMetrics, run_scheduler
from bench.simulate.costs import TurnCosts
from bench.tools.stats import percentile
from bench.tools.utterance_audio import BenchUtterance
from bench.voice import measure
from bench.voice.measure import VoicePlan, VoiceTurn
from bench.voice.summary import answered_reports, stages, voice_to_voice
from core.errors import EarshotError
from engines.base import AsrItem
from serving.workers.process import ProcessWorker

REQUEST = SessionRequest(turn_detection="server_vad", silence_ms=200)
"""The end of a turn after 200 ms of silence: a fixed time, so what differs is the wait for
processors."""

PARTS = (0.4, 0.7, 1.0)
"Parts of each recording that the recogniser gets, as partials do."

CALLS, CALL_TURNS = 10, 4
"""Calls at once, and turns of each, by which the processor time of an open call is measured. That
of one call alone is twice as high: most of it is the loop of the server and of the client."""

TIMEOUT_S = 60.0
"Longest wait for an answer: longer than the limits of the scheduler."


class CostsUnmeasured(EarshotError):
    """Too few turns were answered."""

    code = "unmeasured"


@dataclass(frozen=True, slots=True)
class RecogniserCosts:
    """Costs of the recogniser alone, in ms."""

    fixed_ms: float
    ms_per_s: float
    spread: float
    "Standard deviation of the logarithm of the time over what the two others give."
    marginal: float


@dataclass(frozen=True, slots=True)
class ProcessorUse:
    """Processor seconds of a while."""

    wall_s: float
    gateway_s: float
    workers_s: float
    client_s: float


@asynccontextmanager
async def measured_server(model: Path, max_sessions: int) -> AsyncIterator[OwnServer]:
    """Yields a server with this Whisper model, two workers of one thread each, and hibari."""
    lines = [
        f"[server]\nmax_sessions = {max_sessions}",
        '[asr]\nengine = "faster_whisper"\nworkers = 2',
        f'[asr.options]\nmodel = "{model}"\ndevice = "cpu"\ncpu_threads = 1',
        '[tts]\nengine = "hibari"',
    ]
    with TemporaryDirectory(prefix="earshot-simulate-") as folder:
        config = Path(folder) / "earshot.toml"
        config.write_text("\n".join(lines) + "\n", encoding="utf-8")
        async with own_server(["--config", str(config)]) as server:
            yield server


async def measure_costs(model: Path, clips: Sequence[BenchUtterance], turns: int) -> TurnCosts:
    """Measures all costs. Raises EarshotError."""
    asr = await _measure_recogniser(model, clips)
    async with measured_server(model, CALLS + 1) as server:
        found, spent, asr_s = await _measure_turns(server, clips, turns)
        _, together, _ = await _measure_turns(server, clips, CALL_TURNS, CALLS)
    times_ms = voice_to_voice(found)
    if len(times_ms) < turns / 2:
        raise CostsUnmeasured(f"only {len(times_ms)} of {turns} turns were answered")
    count = turns + measure.WARM_UP_TURNS
    by_name = stages(found)
    took = {name: [stage.took_ms for stage in each] for name, each in by_name.items()}
    voice_ms = median(took["tts"])
    speech_s = [(clip.end - clip.begin) / RATE_HZ for clip in clips]
    waits_ms = [max(1.0, stage.end_ms) for stage in by_name["endpoint_wait"]]
    endpoint_ms = median(waits_ms)
    ready_ms = median([stage.end_ms for stage in by_name["tts"]])
    return TurnCosts(
        call_ms_per_s=1000 * together.gateway_s / together.wall_s / CALLS,
        client_ms_per_s=1000 * together.client_s / together.wall_s / CALLS,
        turn_ms=median(took["llm"]),
        speech_s=median(speech_s),
        speech_spread=pstdev([log(seconds) for seconds in speech_s]),
        notice_ms=max(0.0, median([stage.start_ms for stage in by_name["asr"]])),
        endpoint_ms=endpoint_ms,
        endpoint_spread=pstdev([log(wait_ms) for wait_ms in waits_ms]),
        asr_fixed_ms=asr.fixed_ms,
        asr_ms_per_s=asr.ms_per_s,
        asr_spread=asr.spread,
        asr_marginal=asr.marginal,
        asr_max_batch=8,
        llm_first_ms=0,
        llm_rest_ms=0,
        llm_slots=0,
        llm_growth=0,
        tts_ms=voice_ms,
        tts_rest_ms=max(0.0, 1000 * (spent.workers_s - asr_s) / count - voice_ms),
        tts_lanes=1,
        answer_s=fmean([r.answer_ms for r in answered_reports(found)]) / 1000 + TAIL_S,
        out_ms=max(0.0, percentile(times_ms, 50) - max(endpoint_ms, ready_ms)),
        hop_ms=0,
    )


def sources(what: str) -> dict[str, str]:
    """Returns the source of each measured number. `what`: command, date and machine."""
    alone = {"asr_fixed_ms", "asr_ms_per_s", "asr_spread", "asr_marginal"}
    several = {"call_ms_per_s", "client_ms_per_s"}
    unused = {"llm_slots", "llm_growth", "llm_first_ms", "llm_rest_ms", "hop_ms"}
    parts = {
        **dict.fromkeys(alone, "the recogniser alone, processor time"),
        **dict.fromkeys(several, f"turns of {CALLS} calls at once"),
        **dict.fromkeys(unused, "not used here"),
    }
    names = (field.name for field in fields(TurnCosts))
    return {name: f"{what}: {parts.get(name, 'turns of one call')}" for name in names}


async def _measure_recogniser(model: Path, clips: Sequence[BenchUtterance]) -> RecogniserCosts:
    options = {"model": str(model), "device": "cpu", "cpu_threads": 1}
    worker = ProcessWorker("asr", "faster_whisper", options, NullMetrics(), 0)
    lengths_s, took_ms, batches = list[float](), list[float](), list[float]()
    async with run_scheduler([worker]):
        for number, clip in enumerate(clips):
            pcm, end = clip.at_asr_rate()
            items = [AsrItem(f"m{number}", pcm[: int(part * end)], part == 1) for part in PARTS]
            for item in items:
                lengths_s.append(len(item.pcm) / 16_000)
                took_ms.append(await _decode_ms(worker, [item]))
            if number % 4 == 0:
                last = [AsrItem(f"b{number}.{row}", items[-1].pcm, True) for row in range(3)]
                batches.append((await _decode_ms(worker, last) / took_ms[-1] - 1) / 2)
    first = len(PARTS)  # those of the first recording also load libraries
    slope, fixed = np.polyfit(lengths_s[first:], took_ms[first:], 1)
    slope, fixed = max(0.0, float(slope)), max(1.0, float(fixed))
    expected = [fixed + slope * length_s for length_s in lengths_s[first:]]
    errors_ms = [took - wanted for took, wanted in zip(took_ms[first:], expected, strict=True)]
    # Of the mean call, not of each: the shortest have little to compute.
    spread = sqrt(log(1 + (pstdev(errors_ms) / fmean(expected)) ** 2))
    return RecogniserCosts(fixed, slope, spread, min(max(median(batches), 0.0), 1.0))


async def _decode_ms(worker: ProcessWorker, items: Sequence[AsrItem]) -> float:
    """Returns the processor time of a call, in which nothing else of this process computes."""
    began_s = _ran_s(os.getpid())
    await worker.decode(items)
    return 1000 * (_ran_s(os.getpid()) - began_s)


def _ran_s(pid: int) -> float:
    """Returns the processor seconds of a process and its children. `psutil` counts in 10 ms, too
    coarse for a decode; this counts in nanoseconds (Linux: Documentation/scheduler/sched-stats)."""
    root = psutil.Process(pid)
    folders = [Path(f"/proc/{one.pid}/task") for one in (root, *root.children(recursive=True))]
    files = [file for folder in folders for file in folder.glob("*/schedstat")]
    return sum(int(file.read_text(encoding="ascii").split()[0]) for file in files) / 1e9


@dataclass(slots=True)
class _Meter:
    """Processor times since it was made."""

    pid: int
    began_s: float
    gateway_s: float
    all_s: float
    client_s: float

    @classmethod
    def start(cls, pid: int) -> "_Meter":
        return cls(pid, perf_counter(), _own_s(pid), use_of(pid).cpu_s, process_time())

    def stop(self) -> ProcessorUse:
        gateway_s = _own_s(self.pid) - self.gateway_s
        all_s = use_of(self.pid).cpu_s - self.all_s
        client_s = process_time() - self.client_s
        return ProcessorUse(perf_counter() - self.began_s, gateway_s, all_s - gateway_s, client_s)


def _own_s(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


async def _measure_turns(
    server: OwnServer, clips: Sequence[BenchUtterance], turns: int, calls: int = 1
) -> tuple[list[VoiceTurn], ProcessorUse, float]:
    """Returns the turns of `calls` at once, `turns` of each, the processor times with the warm-up,
    and the recognisers' time."""
    asr_s, meter = await _asr_s(server.address), _Meter.start(server.pid)
    plan = VoicePlan(server.address, "ws", REQUEST, turns, clients=calls, timeout_s=TIMEOUT_S)
    found = await measure.run(plan, clips, lambda _: None)
    used = meter.stop()
    return found, used, await _asr_s(server.address) - asr_s


async def _asr_s(address: Address) -> float:
    """Returns the time that the recognisers have computed."""
    shown = await metrics(address)
    name = "earshot_asr_compute_seconds_sum"
    return sum(value for key, value in shown.items() if key.startswith(name))
