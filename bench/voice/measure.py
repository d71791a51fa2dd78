"""Runs several clients in parallel, turn by turn."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from bench.client.conversation import TurnReport, open_conversation
from bench.client.http import Address
from bench.client.microphone import RATE_HZ
from bench.client.realtime import ClientTransport, SessionRequest
from bench.client.telephone import TelephoneSystem
from bench.talk.command import GAP_S
from bench.tools.utterance_audio import BenchUtterance, sleep_until
from bench.voice.telephone import TelephoneLines, open_call
from core.audio import Pcm

if TYPE_CHECKING:
    from bench.voice.satellite import MeasuredSatellite


class SpokenConversation(Protocol):
    """One connection, through any door."""

    async def say(self, pcm: Pcm, span: tuple[int, int]) -> TurnReport:
        """Sends audio in real time and waits for the end of the answer. pcm: samples at RATE_HZ.
        span: first and one past the last sample of speech."""
        ...


WARM_UP_TURNS = 1
"Turns of each client that are not counted: the first turn also loads models and libraries."


@dataclass(frozen=True, slots=True)
class VoicePlan:
    """Parameters of a run."""

    address: Address
    transport: ClientTransport | TelephoneSystem | Literal["esphome"]
    request: SessionRequest
    turns: int
    "Turns of each client, without the warm-up."
    clients: int = 1
    "Number of clients at the same time."
    timeout_s: float = 30.0
    "Seconds without any event after which a turn is given up."
    reconnects: bool = False
    "True: a new connection for each turn."
    lines: TelephoneLines | None = None
    "How the server is called by telephone; needed if the transport is a telephone system."
    satellite: "MeasuredSatellite | None" = None
    "The satellite that the server connects to; needed if the transport is `esphome`."


@dataclass(frozen=True, slots=True)
class VoiceTurn:
    """One turn that counts."""

    client: int
    "Index of the client, from 0."
    turn: int
    "Index of the turn of this client, from 0."
    clip: str
    "Text of the clip, or the name of its recording."
    report: TurnReport


OnTurn = Callable[[VoiceTurn], None]
"Function that is called after each turn."


async def run(plan: VoicePlan, clips: Sequence[BenchUtterance], on_turn: OnTurn) -> list[VoiceTurn]:
    """Runs all clients and returns their turns, client by client.

    Clients start one after another, so that their utterances end evenly spread over time.
    on_turn: called after each turn that counts. Raises EarshotError, from several clients as an
    ExceptionGroup.
    """
    shift_s = sum(len(clip.pcm) for clip in clips) / len(clips) / RATE_HZ / plan.clients
    began_at = asyncio.get_running_loop().time()
    async with asyncio.TaskGroup() as tasks:
        running = [
            tasks.create_task(
                _run_client(plan, clips, number, began_at + number * shift_s, on_turn)
            )
            for number in range(plan.clients)
        ]
    return [turn for task in running for turn in task.result()]


async def _run_client(
    plan: VoicePlan, clips: Sequence[BenchUtterance], number: int, begin_at: float, on_turn: OnTurn
) -> list[VoiceTurn]:
    await sleep_until(begin_at, asyncio.get_running_loop().time)
    turns = range(-WARM_UP_TURNS, plan.turns)
    connections = [range(turn, turn + 1) for turn in turns] if plan.reconnects else [turns]
    found: list[VoiceTurn] = []
    for connection_turns in connections:
        async with _connection(plan) as conversation:
            for turn in connection_turns:
                result = await _run_turn(conversation, clips, number, turn)
                if turn >= 0:
                    found.append(result)
                    on_turn(result)
    return found


@asynccontextmanager
async def _connection(plan: VoicePlan) -> AsyncGenerator[SpokenConversation, None]:
    """Opens one connection while the body runs. Raises CannotConnect."""
    if plan.transport == "webrtc" or plan.transport == "ws" or plan.transport == "live":
        async with open_conversation(
            plan.address, plan.transport, plan.request, timeout_s=plan.timeout_s
        ) as (conversation, _):
            yield conversation
    elif plan.transport == "esphome":
        if plan.satellite is not None:
            async with plan.satellite.connected(plan.timeout_s) as satellite:
                yield satellite
    elif plan.lines is not None:
        async with open_call(plan.address, plan.transport, plan.lines, plan.timeout_s) as call:
            yield call


async def _run_turn(
    conversation: SpokenConversation,
    clips: Sequence[BenchUtterance],
    client: int,
    turn: int,
) -> VoiceTurn:
    """Runs one turn; every client begins with another clip."""
    clip = clips[(client + turn) % len(clips)]
    report = await conversation.say(clip.pcm, (clip.begin, clip.end))
    await asyncio.sleep(GAP_S)
    return VoiceTurn(client, turn, clip.text, report)
