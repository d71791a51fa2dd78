"""Events that a client of the Realtime API may send, and worse."""

import asyncio
import base64
import json
import random
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any, get_args

import numpy as np

from core.audio import ASR_RATE_HZ, AudioFrame
from core.conversation.events import FormatName
from core.errors import RequestError
from core.ports import ToolSpec
from engines.base import AS_CONFIGURED, CallDelta, LlmOptions, Message, TextDelta, ToolCall
from media.codecs import g711
from media.pcm import from_bytes
from pipeline.session.sessions import Sessions
from pipeline.shared.settings import PlayoutPacing, SessionSettings
from signaling.realtime.connection import RealtimeConnection
from signaling.realtime.protocol.audio_format import OutputAudioEncoder
from signaling.realtime.protocol.audio_input import InputAudioDecoder, decode_recordings
from signaling.realtime.protocol.beta import to_ga
from signaling.realtime.protocol.client_events import (
    ClientEvent,
    InputAppend,
    ItemCreate,
    ResponseCreate,
    SessionUpdate,
)
from signaling.realtime.protocol.decode import decode
from signaling.realtime.protocol.translator import Transport
from signaling.realtime.session.items import new_item
from signaling.realtime.session.offer import read_secret_request
from signaling.realtime.session.response import response_request
from signaling.realtime.session.settings import (
    SessionConfiguration,
    apply_session_update,
    check_unchanged,
    session_json,
)
from tests.fuzz.choices import drawn, scripts
from tests.fuzz.client_events import BETA_EVENTS, EVENTS, SESSIONS
from tests.fuzz.mutate import mutated_json
from tests.fuzz.shared_loop import run_kept
from tests.fuzz.target import Target, lines
from tests.pipeline.fakes import WORDS, Counts, EchoLlm, LevelAsr, World

LEVELS = (0, 0, *WORDS)


def client_text(lottery: random.Random) -> str:
    event = lottery.choice((*EVENTS, *BETA_EVENTS))
    if lottery.random() < 0.2:
        for _ in range(lottery.randint(1, 3)):
            event = mutated_json(lottery, event)
    return json.dumps(event)


class AnyTurnLlm(EchoLlm):
    """A model that answers the last message of the conversation, which may be none, and calls the
    client's lamp when a user asks for it or a call is required."""

    async def reply(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
        *,
        language: str,
        options: LlmOptions = AS_CONFIGURED,
    ) -> AsyncGenerator[TextDelta | CallDelta | ToolCall, None]:
        if not messages or messages[-1].role != "user":
            messages = [*messages, Message("user", "nothing")]
        if "lamp" in [tool.name for tool in tools] and (
            options.must_call or messages[-1].text == "one"
        ):
            yield TextDelta("Yes. ")
            yield ToolCall("call_1", "lamp", {})
            yield ToolCall("call_1", "nothing", {})
            return
        async with aclosing(super().reply(messages, tools, language=language)) as deltas:
            async for delta in deltas:
                yield delta


FORMATS: tuple[FormatName, ...] = ("audio/pcm", "audio/pcmu", "audio/pcma")


def events(data: bytes) -> None:
    """Checks that a text frame gives an event, or an error that names its fault, in either protocol
    version."""
    text = data.decode(errors="replace")
    for reshape in (None, to_ga):
        try:
            run_kept(_meant(decode(text, reshape)))
        except RequestError as error:
            assert error.code
            assert 0 < len(str(error)) < 2_000


async def _meant(event: ClientEvent) -> None:
    """Applies the event as far as is done without a session."""
    match event:
        case SessionUpdate(session=sent):
            terms = apply_session_update(SessionConfiguration(), sent)
            check_unchanged(SessionConfiguration(), terms)
            json.dumps(session_json(terms, "sess_1"))
        case ItemCreate(item=item):
            await decode_recordings(new_item(item).recordings, "audio/pcm")
        case ResponseCreate(response=params):
            response_request(params)
        case InputAppend(audio=audio):
            for name in FORMATS:
                upload = InputAudioDecoder(name)
                upload.push(audio)
                frames = list(upload.take())
                assert sum(len(frame.pcm) for frame in frames) <= 2 * len(audio)


def secrets(data: bytes) -> None:
    """Checks the body of a request for an ephemeral key."""
    try:
        asked = read_secret_request(data)
        if asked.session is not None:
            apply_session_update(SessionConfiguration(), asked.session)
    except RequestError as error:
        assert error.code
        assert 0 < len(str(error)) < 2_000


def sound(data: bytes) -> None:
    """Checks that any bytes are sound in G.711 and survive coding."""
    for law in get_args(g711.G711Law):
        heard = g711.decode(data, law)
        assert len(heard) == len(data)
        assert np.array_equal(g711.decode(g711.encode(heard, law), law), heard)
    pieces = OutputAudioEncoder().push(
        "item_1", from_bytes(data[: len(data) // 2 * 2]), "audio/pcmu"
    )
    assert all(base64.b64decode(piece, validate=True) for piece in pieces)


def conversing(lottery: random.Random) -> None:
    """Checks that a whole session on scripted engines survives any events, ends within seconds of
    its close and leaves no task behind."""
    world = World(
        LevelAsr(delay_s=lottery.choice((0.0, 0.05, 1.0))), AnyTurnLlm(ending=". And so on.")
    )
    transport: Transport = lottery.choice(("webrtc", "websocket"))
    sent: list[dict[str, Any]] = []

    async def send(text: str) -> None:
        sent.append(json.loads(text))

    async def main() -> None:
        sessions = Sessions(world.services(), world.conversations, max_sessions=1)
        paced_by: PlayoutPacing = "server" if transport == "webrtc" else "client"
        async with sessions.open(SessionSettings(), paced_by=paced_by) as session:
            terms = SessionConfiguration(is_beta=lottery.random() < 0.3)
            connection = RealtimeConnection(
                session, terms, send, Counts(), transport=transport, idle_timeout_s=600
            )
            async with asyncio.TaskGroup() as tasks:
                running = tasks.create_task(connection.run())
                await asyncio.sleep(0)
                for _ in range(lottery.randint(1, 12)):
                    await _act(lottery, connection, session)
                assert not running.done(), "the session did not survive"
                connection.close()
                async with asyncio.timeout(10):
                    await running
        assert sessions.count == 0
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run_kept(main())
    ids = [event["event_id"] for event in sent]
    assert len(set(ids)) == len(ids)
    _check_errors(sent)
    _check_responses(sent)


async def _act(lottery: random.Random, connection: RealtimeConnection, session: Any) -> None:
    """Lets the client send an event, good or bad, or lets audio and time pass."""
    if lottery.random() < 0.6:
        await connection.receive(client_text(lottery))
        return
    level = lottery.choice(LEVELS)
    for _ in range(lottery.choice((1, 10, 40, 100))):
        session.feed(AudioFrame(np.full(320, level, np.int16), ASR_RATE_HZ, 0))
        session.pull()
        await asyncio.sleep(0.02)


def _check_errors(sent: list[dict[str, Any]]) -> None:
    for event in sent:
        if event["type"] == "error":
            assert event["error"]["code"]
            assert event["error"]["type"] == "invalid_request_error", event


def _check_responses(sent: list[dict[str, Any]]) -> None:
    """Asserts that there is one response at a time, begun once and ended at most once."""
    is_open = ""
    for event in sent:
        if event["type"] == "response.created":
            assert not is_open, "two responses at once"
            is_open = event["response"]["id"]
        elif event["type"] == "response.done":
            assert event["response"]["id"] == is_open
            is_open = ""


TARGETS = (
    Target(
        name="realtime_events",
        one_input=events,
        seeds=lines((*EVENTS, *BETA_EVENTS)),
        is_json=True,
    ),
    Target(
        name="realtime_secrets",
        one_input=secrets,
        seeds=lines({"expires_after": {"seconds": 60}, "session": one} for one in SESSIONS),
        is_json=True,
    ),
    Target(name="realtime_sound", one_input=sound, seeds=scripts()),
    Target(
        name="realtime_sessions",
        one_input=drawn(conversing),
        seeds=scripts(),
        few=100,
        many=20_000,
    ),
)
