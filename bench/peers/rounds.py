"""The two measurements: one client alone, and several clients whose utterances end evenly spread
over time."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from bench.client.realtime import ConnectionLost
from bench.measurements.resources import use_of
from bench.peers.systems import AsrClient, SystemUnderTest, UtteranceResult
from bench.tools.stats import percentile
from bench.tools.utterance_audio import BenchUtterance, sleep_until


@dataclass(frozen=True, slots=True)
class AsrRound:
    """Result of one system in one round."""

    times_ms: Sequence[float]
    "Time from the last speech sample to the final text, per utterance."
    wall_s: float
    "Time from the first client's first sample to the last final text."
    speech_s: float
    cpu_s: float
    "Processor time of all the server's processes."
    with_text: int
    "Number of answers that are not empty."
    lost: Sequence[str] = ()
    "Errors of the utterances without any answer; other values do not include these utterances."

    @property
    def p50(self) -> float:
        return percentile(self.times_ms, 50)

    @property
    def p95(self) -> float:
        return percentile(self.times_ms, 95)

    @property
    def throughput(self) -> float:
        """Seconds of speech recognised per second."""
        return self.speech_s / self.wall_s

    @property
    def cpu_ms(self) -> float:
        """Processor time per answered utterance; the time spent on lost utterances is included."""
        return 1000 * self.cpu_s / len(self.times_ms)


async def measure(
    system: SystemUnderTest, utterances: Sequence[BenchUtterance], talkers: int, each: int
) -> AsrRound:
    """Runs `talkers` clients with `each` utterances, each after the final text of the previous one.

    Each client begins a fraction of an utterance (1 / talkers) after the previous client, so that
    their ends are evenly spread.
    """
    clock = asyncio.get_running_loop().time
    shift_s = sum(utterance.speech_s for utterance in utterances) / len(utterances) / talkers
    before = use_of(system.pid).cpu_s
    began_at = clock()
    async with asyncio.TaskGroup() as tasks:
        running = [
            tasks.create_task(
                _talk(system, _utterances_of(utterances, number, each), began_at + number * shift_s)
            )
            for number in range(talkers)
        ]
    outcomes = [outcome for task in running for outcome in task.result()]
    finals = [final for _, final in outcomes if isinstance(final, UtteranceResult)]
    wall_s = clock() - began_at
    return AsrRound(
        times_ms=[final.took_ms for final in finals],
        wall_s=wall_s,
        speech_s=sum(
            utterance.speech_s
            for utterance, final in outcomes
            if isinstance(final, UtteranceResult)
        ),
        cpu_s=use_of(system.pid).cpu_s - before,
        with_text=sum(bool(final.text) for final in finals),
        lost=[str(error) for _, error in outcomes if isinstance(error, ConnectionLost)],
    )


def _utterances_of(
    utterances: Sequence[BenchUtterance], talker: int, each: int
) -> list[BenchUtterance]:
    """Returns a client's utterances; every client begins with another one."""
    return [utterances[(talker + number) % len(utterances)] for number in range(each)]


UtteranceOutcome = tuple[BenchUtterance, UtteranceResult | ConnectionLost]


async def _talk(
    system: SystemUnderTest, utterances: Sequence[BenchUtterance], begin_at: float
) -> list[UtteranceOutcome]:
    clock = asyncio.get_running_loop().time
    async with system.client() as client:
        await sleep_until(begin_at, clock)
        return [(utterance, await _say(client, utterance)) for utterance in utterances]


async def _say(client: AsrClient, utterance: BenchUtterance) -> UtteranceResult | ConnectionLost:
    try:
        final = await client.say(utterance)
    except ConnectionLost as error:
        return error
    await sleep_until(final.next_at, asyncio.get_running_loop().time)
    return final
