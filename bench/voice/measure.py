"""Runs several clients in parallel, turn by turn."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench.client.conversation import ConversationClient, TurnReport, open_conversation
from bench.client.http import Address
from bench.client.microphone import RATE_HZ
from bench.client.realtime import ClientTransport, SessionRequest
from bench.talk.command import GAP_S
from bench.tools.utterance_audio import BenchUtterance, until

WARM_UP_TURNS = 1
"Turns per connection that are not counted: the first turn also loads what is needed at first use."


@dataclass(frozen=True, slots=True)
class VoicePlan:
    """Parameters of a run."""

    address: Address
    transport: ClientTransport
    request: SessionRequest
    turns: int
    "Turns of each client, without the warm-up."
    clients: int = 1
    timeout_s: float = 30.0
    reconnects: bool = False
    "True: a new connection for each turn."


@dataclass(frozen=True, slots=True)
class VoiceTurn:
    """One turn that counts."""

    client: int
    turn: int
    clip: str
    report: TurnReport


OnTurn = Callable[[VoiceTurn], None]


async def run(plan: VoicePlan, clips: Sequence[BenchUtterance], on_turn: OnTurn) -> list[VoiceTurn]:
    """Runs all clients and returns their turns, in order. Utterances end evenly spread over time.

    Raises EarshotError, from several clients as an ExceptionGroup.
    """
    shift_s = sum(len(clip.pcm) for clip in clips) / len(clips) / RATE_HZ / plan.clients
    began_at = asyncio.get_running_loop().time()
    async with asyncio.TaskGroup() as tasks:
        running = [
            tasks.create_task(_client(plan, clips, number, began_at + number * shift_s, on_turn))
            for number in range(plan.clients)
        ]
    return [turn for task in running for turn in task.result()]


async def _client(
    plan: VoicePlan, clips: Sequence[BenchUtterance], number: int, begin_at: float, on_turn: OnTurn
) -> list[VoiceTurn]:
    await until(begin_at, asyncio.get_running_loop().time)
    turns = range(-WARM_UP_TURNS, plan.turns)
    connections = [range(turn, turn + 1) for turn in turns] if plan.reconnects else [turns]
    found: list[VoiceTurn] = []
    for connection_turns in connections:
        connection = open_conversation(
            plan.address, plan.transport, plan.request, timeout_s=plan.timeout_s
        )
        async with connection as (conversation, _):
            for turn in connection_turns:
                result = await _turn(conversation, clips, number, turn)
                if turn >= 0:
                    found.append(result)
                    on_turn(result)
    return found


async def _turn(
    conversation: ConversationClient, clips: Sequence[BenchUtterance], client: int, turn: int
) -> VoiceTurn:
    """Runs one turn; every client begins with another clip."""
    clip = clips[(client + turn) % len(clips)]
    report = await conversation.say(clip.pcm, (clip.begin, clip.end))
    await asyncio.sleep(GAP_S)
    return VoiceTurn(client, turn, clip.text, report)
