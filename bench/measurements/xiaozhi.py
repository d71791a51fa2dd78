"""Measures how soon a xiaozhi board gets its answer: alone, among many, and against a browser.

    python -m bench.measurements.xiaozhi [browser] [board] [crowd] [--rounds 3] [--turns 10]
        [--crowd-turns 5] [--idle 200] [--talking 20] [--stubs 50,150,80]

One server with engines that take set times runs on one core, all clients on another. The parts take
turns, round by round. Measured is the time from the last sample of speech to the first Opus packet,
and to the first audible sample; for the browser only the latter. See docs/bench.md.
"""

import argparse
import asyncio
import json
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from aiohttp import ClientSession, ClientWebSocketResponse, TCPConnector, WSMsgType

from bench.capacity.cpu_affinity import cores, on_core
from bench.client.http import Address
from bench.client.latency_probe import AudioReceiver
from bench.client.realtime import SessionRequest
from bench.server.own_server import own_server
from bench.tools.clips import COMMANDS, synthesise
from bench.tools.stats import machine, markdown, percentile
from bench.tools.utterance_audio import BenchUtterance, make_utterance, sleep_until
from bench.voice.measure import VoicePlan, run
from bench.voice.stub_server import StubDelays, parse_stub_delays
from bench.voice.summary import voice_to_voice
from core.audio import ASR_RATE_HZ, AudioFrame
from core.errors import EarshotError
from media.codecs.opus import OpusDecoder, OpusEncoder, OpusSettings

# A simulated xiaozhi board.

PACKET_MS = 60
"Audio per packet of a board."

TURN_TIMEOUT_S = 30
"Longest wait for an answer."

DOWN_RATE_HZ = 24_000
"Sample rate of the server's audio."

HELLO = {
    "type": "hello",
    "version": 1,
    "transport": "websocket",
    "features": {},
    "audio_params": {"format": "opus", "sample_rate": 16000, "channels": 1, "frame_duration": 60},
}


class NoAnswer(EarshotError):
    """The server did not answer."""

    code = "no_answer"


@dataclass(frozen=True, slots=True)
class EncodedClip:
    """A clip to send, encoded before any time is measured."""

    packets: Sequence[bytes]
    end_s: float
    "Time of its last speech sample."


@dataclass(frozen=True, slots=True)
class BoardTurn:
    """Latencies of one turn, in ms from the last speech sample."""

    packet_ms: float
    "Time to the first Opus packet."
    audible_ms: float
    "Time to the first audible sample, as a board without a buffer plays it."


def clip_of(utterance: BenchUtterance) -> EncodedClip:
    """Encodes an utterance into packets."""
    settings = OpusSettings(24_000, "voip", PACKET_MS, complexity=0)
    encoder = OpusEncoder(ASR_RATE_HZ, settings)
    pcm, end = utterance.at_asr_rate()
    size = encoder.frame_samples
    whole = range(0, len(pcm) - size + 1, size)
    return EncodedClip([encoder.encode(pcm[at : at + size]) for at in whole], end / ASR_RATE_HZ)


class Board:
    """One connection of a board."""

    def __init__(self, ws: ClientWebSocketResponse) -> None:
        self._ws = ws
        self._decoder = OpusDecoder(DOWN_RATE_HZ)
        self._played = 0
        "Samples received since the connect."

    async def close(self) -> None:
        await self._ws.close()

    async def turn(self, clip: EncodedClip) -> BoardTurn:
        """Sends the clip and receives the answer to its end. Raises NoAnswer."""
        start = {"type": "listen", "state": "start", "mode": "auto"}
        await self._ws.send_str(json.dumps(start))
        clock = asyncio.get_running_loop().time
        began = clock()

        async def speak() -> None:
            for number, packet in enumerate(clip.packets, 1):
                await sleep_until(began + number * PACKET_MS / 1000, clock)
                await self._ws.send_bytes(packet)

        async with asyncio.timeout(TURN_TIMEOUT_S), asyncio.TaskGroup() as tasks:
            tasks.create_task(speak())
            first_at, audible_at = await self._receive_answer()
        ended = began + clip.end_s
        return BoardTurn(1000 * (first_at - ended), 1000 * (audible_at - ended))

    async def _receive_answer(self) -> tuple[float, float]:
        """Returns the times of the first packet and of the first audible sample, after the answer
        ended.

        Raises NoAnswer.
        """
        clock, receiver = asyncio.get_running_loop().time, AudioReceiver(is_paced=False)
        first: float | None = None
        async for message in self._ws:
            if message.type is WSMsgType.BINARY:
                now = clock()
                first = now if first is None else first
                pcm = self._decoder.decode(message.data)
                receiver.receive(AudioFrame(pcm, DOWN_RATE_HZ, self._played), now)
                self._played += len(pcm)
            elif message.type is WSMsgType.TEXT and json.loads(message.data).get("state") == "stop":
                break
        if first is None or receiver.audible_at is None:
            raise NoAnswer("no audible answer")
        return first, receiver.audible_at


async def connect(http: ClientSession, number: int) -> Board:
    """Connects a board. number: determines its MAC."""
    device = {"Device-Id": f"02:00:00:00:{number >> 8:02x}:{number & 255:02x}"}
    async with http.post("/xiaozhi/ota/", headers=device) as answer:
        websocket = (await answer.json())["websocket"]
    headers = device | {"Authorization": f"Bearer {websocket['token']}", "Protocol-Version": "1"}
    ws = await http.ws_connect(websocket["url"], headers=headers)
    await ws.send_str(json.dumps(HELLO))
    await ws.receive_str()
    return Board(ws)


PARTS = ("browser", "board", "crowd")

WITHIN = 1.2
"Allowed ratio of the p95 of a board among many to that of a board alone."

HEAD = ("", "first packet p50 / p95", "audible p50 / p95", "turns")


@dataclass(frozen=True, slots=True)
class TurnTimes:
    """Latencies in ms of all turns of one part, over all rounds."""

    packet: list[float] = field(default_factory=list)
    "Boards only."
    audible: list[float] = field(default_factory=list)

    def add(self, answered: Sequence[BoardTurn]) -> None:
        self.packet.extend(turn.packet_ms for turn in answered)
        self.audible.extend(turn.audible_ms for turn in answered)


@dataclass(frozen=True, slots=True, kw_only=True)
class XiaozhiPlan:
    """Parts of the measurement, and their numbers of turns."""

    parts: Sequence[str]
    rounds: int
    turns: int
    "Turns of the browser and of the single board, in each round."
    crowd_turns: int
    "Turns of each talking board among many, in each round."
    idle: int
    talking: int


async def measure(
    address: Address, http: ClientSession, utterances: Sequence[BenchUtterance], plan: XiaozhiPlan
) -> Mapping[str, TurnTimes]:
    """Measures the parts; returns the times by part. Raises NoAnswer, EarshotError."""
    clips = [clip_of(utterance) for utterance in utterances]
    found = {part: TurnTimes() for part in plan.parts}
    for _ in range(plan.rounds):
        for part, times in found.items():
            match part:
                case "browser":
                    voice_plan = VoicePlan(address, "webrtc", SessionRequest(), plan.turns)
                    turns = await run(voice_plan, utterances, lambda _: None)
                    times.audible.extend(voice_to_voice(turns))
                case "board":
                    times.add(await crowd(http, clips, plan.turns, 0, 1))
                case _:
                    many = crowd(http, clips, plan.crowd_turns, plan.idle, plan.talking)
                    times.add(await many)
            print(f"  {part}: {len(times.audible)} turns", file=sys.stderr, flush=True)
    return found


async def crowd(
    http: ClientSession, clips: Sequence[EncodedClip], turns: int, idle: int, talking: int
) -> list[BoardTurn]:
    """Returns all turns apart from each board's first, which warms it up."""
    boards = [await connect(http, number) for number in range(idle + talking)]
    spread_s = sum(clip.end_s for clip in clips) / len(clips) / talking

    async def talk(board: Board, number: int) -> list[BoardTurn]:
        await asyncio.sleep(number * spread_s)
        indices = range(number, number + turns + 1)
        return [await board.turn(clips[index % len(clips)]) for index in indices][1:]

    async with asyncio.TaskGroup() as tasks:
        work = [
            tasks.create_task(talk(board, number)) for number, board in enumerate(boards[idle:])
        ]
    for board in boards:
        await board.close()
    return [turn for task in work for turn in task.result()]


def table(found: Mapping[str, TurnTimes], plan: XiaozhiPlan) -> str:
    """Returns a Markdown table, and the comparison of the parts."""
    names = {
        "browser": "browser (WebRTC), alone",
        "board": "board, alone",
        "crowd": f"board, {plan.talking} talking beside {plan.idle} idle",
    }
    rows = [
        [names[part], _shown(times.packet), _shown(times.audible), str(len(times.audible))]
        for part, times in found.items()
    ]
    lines = [markdown(HEAD, rows), ""]
    if {"browser", "board"} <= found.keys():
        browser, board = (percentile(found[client].audible, 50) for client in ("browser", "board"))
        lines.append(f"board - browser, first audible sample, p50: {board - browser:+.0f} ms")
    if {"board", "crowd"} <= found.keys():
        alone, among = found["board"], found["crowd"]
        ratios = (
            percentile(many, 95) / percentile(single, 95)
            for single, many in ((alone.packet, among.packet), (alone.audible, among.audible))
        )
        ratios_text = " and ".join(f"{ratio:.2f}" for ratio in ratios)
        lines.append(
            f"among many / alone, p95: {ratios_text} (first packet, audible); goal {WITHIN}"
        )
    return "\n".join(lines)


def _shown(times_ms: Sequence[float]) -> str:
    if not times_ms:
        return "-"
    return f"{percentile(times_ms, 50):.0f} / {percentile(times_ms, 95):.0f}"


@asynccontextmanager
async def _server(
    engines: StubDelays, max_sessions: int, core: int
) -> AsyncIterator[tuple[Address, ClientSession]]:
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        config = engines.write(folder)
        limit = f"\n[server]\nmax_sessions = {max_sessions}\n"
        config.write_text(config.read_text("utf-8") + limit, "utf-8")
        with on_core(core):
            server = own_server(["--config", str(config)])
            address = (await stack.enter_async_context(server)).address
        connector = TCPConnector(limit=0)  # each board has a connection of its own
        yield (
            address,
            await stack.enter_async_context(ClientSession(address.url, connector=connector)),
        )


async def _main(plan: XiaozhiPlan, engines: StubDelays) -> None:
    placed = cores()
    measured_on = machine()
    utterances = [
        make_utterance(text, synthesise(text), seed) for seed, text in enumerate(COMMANDS)
    ]
    sessions = plan.idle + plan.talking + 10
    with on_core(placed.load):
        async with _server(engines, sessions, placed.server) as (address, http):
            found = await measure(address, http, utterances, plan)
    print(f"engines of {engines} ms, {plan.rounds} rounds; {measured_on}\n")
    print(table(found, plan))


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns exit code 1 when something could not be measured."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.measurements.xiaozhi", description=__doc__
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "parts", nargs="*", choices=(*PARTS, []), help="parts to measure; default: all"
    )
    parser.add_argument("--rounds", type=_positive, default=3)
    parser.add_argument(
        "--turns", type=_positive, default=10, help="turns of a single board in each round (10)"
    )
    parser.add_argument(
        "--crowd-turns",
        type=_positive,
        default=5,
        help="turns of each of many boards in each round (5)",
    )
    parser.add_argument("--idle", type=int, default=200, help="number of idle boards (200)")
    parser.add_argument(
        "--talking",
        type=_positive,
        default=20,
        help="number of boards that talk at the same time (20)",
    )
    parser.add_argument(
        "--stubs", type=parse_stub_delays, default=StubDelays(50, 150, 80), metavar="ASR,LLM,TTS"
    )
    options = parser.parse_args(arguments)
    plan = XiaozhiPlan(
        parts=tuple(options.parts or PARTS),
        rounds=options.rounds,
        turns=options.turns,
        crowd_turns=options.crowd_turns,
        idle=options.idle,
        talking=options.talking,
    )
    code = 0
    try:
        asyncio.run(_main(plan, options.stubs))
    except* EarshotError as group:
        print(f"{parser.prog}: {group.exceptions[0]}", file=sys.stderr)
        code = 1
    return code


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


if __name__ == "__main__":
    sys.exit(main())
