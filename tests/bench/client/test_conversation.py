"""A conversation with a server process, over both transports."""

import asyncio

import pytest

from bench.client.conversation import TurnReport, open_conversation
from bench.client.realtime import ClientTransport, SessionRequest
from bench.measurements.resources import use_of
from bench.server.own_server import OwnServer, own_server
from bench.tools.clips import synthesise

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("talkers")]

ServerAnswers = tuple[OwnServer, dict[ClientTransport, list[TurnReport]], int]

TRANSPORTS: tuple[ClientTransport, ...] = ("webrtc", "ws")


@pytest.fixture(scope="module")
def server_answers() -> ServerAnswers:
    """Returns the answers over each transport, and the number of worker processes."""

    async def run() -> ServerAnswers:
        async with own_server() as server:
            reports = {name: await converse(server, name) for name in TRANSPORTS}
            return server, reports, use_of(server.pid).processes

    return asyncio.run(run())


async def converse(server: OwnServer, transport: ClientTransport) -> list[TurnReport]:
    async with open_conversation(
        server.address, transport, SessionRequest(language="en"), timeout_s=20
    ) as (
        talker,
        _,
    ):
        return [
            await talker.say(synthesise("turn on the kitchen lights")),
            await talker.write("what is on the shopping list"),
        ]


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_spoken_command_is_executed_and_answered_by_voice(
    transport: ClientTransport, server_answers: ServerAnswers
) -> None:
    report = server_answers[1][transport][0]
    assert (report.status, report.error) == ("answered", "")
    assert report.transcript.lower().strip(".") == "turn on the kitchen lights"
    assert "kitchen" in report.reply
    assert report.answer_ms > 500
    stages = [stage.name for stage in report.stages]
    assert stages == ["endpoint_wait", "asr", "llm", "tts", "playout"]
    assert report.voice_to_voice_ms is not None
    assert report.server_ms is not None
    assert 0 < report.server_ms < 10_000
    assert 0 < report.voice_to_voice_ms < 10_000


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_written_question_is_answered_by_voice(
    transport: ClientTransport, server_answers: ServerAnswers
) -> None:
    report = server_answers[1][transport][1]
    assert report.status == "answered"
    assert report.reply
    assert report.answer_ms > 300


def test_the_recogniser_runs_in_its_own_process(
    server_answers: ServerAnswers,
) -> None:
    assert server_answers[2] >= 2
