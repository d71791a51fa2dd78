"""A replica of an engine without Ray: its calls, their cancellation, and its health."""

import asyncio
from contextlib import aclosing

import pytest

from core.errors import ConfigError, EngineCrashed
from engines.base import AsrOptions, TtsInfo
from engines.runtime.worker.payloads import (
    DECODE,
    SPEAK,
    AsrBatch,
    AsrItemMessage,
    SpeakArguments,
    pcm_to_bytes,
)
from engines.runtime.worker.protocol import (
    CallRequest,
    ChunkReply,
    DoneReply,
    FailureReply,
    LoadRequest,
    ReadyReply,
    decode_payload,
    frame,
    read_message,
    reply_reader,
)
from engines.runtime.worker.replica import EngineReplica
from tests.speech import say

pytestmark = pytest.mark.live

LIMIT_S = 30.0


def replica_of(kind: str, name: str) -> EngineReplica:
    return EngineReplica(bytes(frame(LoadRequest(kind, name, {}))))


def speak(text: str) -> bytes:
    arguments = SpeakArguments(text, "en", "en-gb", 1.0, needs_words=False)
    return bytes(frame(CallRequest(0, SPEAK, arguments)))


def test_a_recogniser_answers_with_words() -> None:
    replica = replica_of("asr", "pocketsphinx")
    pcm = pcm_to_bytes(say("what time is it", tail_ms=300))
    batch = AsrBatch([AsrItemMessage("utt", pcm, True, AsrOptions("en"))])
    try:
        data = asyncio.run(replica.compute(bytes(frame(CallRequest(0, DECODE, batch))), LIMIT_S))
    finally:
        replica.close()
    reply = read_message(reply_reader(), data)
    assert isinstance(reply, DoneReply)
    assert b"time" in bytes(reply.payload)


def test_a_voice_streams_and_a_closed_stream_frees_it() -> None:
    replica = replica_of("tts", "espeak")

    async def scenario() -> None:
        info = read_message(reply_reader(), await replica.describe())
        assert isinstance(info, ReadyReply)
        assert decode_payload(info.info, TtsInfo).rate_hz > 0
        async with aclosing(replica.stream(speak("Anna. " * 200), LIMIT_S)) as parts:
            first = read_message(reply_reader(), await anext(parts))
        assert isinstance(first, ChunkReply)
        assert replica._pending == {}
        replies = [one async for one in replica.stream(speak("Otto."), LIMIT_S)]
        assert isinstance(read_message(reply_reader(), replies[-1]), DoneReply)

    try:
        asyncio.run(scenario())
    finally:
        replica.close()


def test_an_unknown_method_is_a_failure() -> None:
    replica = replica_of("asr", "pocketsphinx")
    try:
        data = asyncio.run(replica.compute(bytes(frame(CallRequest(0, "sing", None))), LIMIT_S))
    finally:
        replica.close()
    assert isinstance(read_message(reply_reader(), data), FailureReply)


def test_a_call_that_hangs_makes_the_replica_unhealthy() -> None:
    replica = replica_of("tts", "espeak")

    async def scenario() -> None:
        await replica.check_health()
        async with aclosing(replica.stream(speak("Anna. " * 50), -1.0)) as parts:
            await anext(parts)
            with pytest.raises(EngineCrashed, match="hangs"):
                await replica.check_health()
        await replica.check_health()

    try:
        asyncio.run(scenario())
    finally:
        replica.close()


def test_an_engine_that_does_not_load_says_why() -> None:
    with pytest.raises(ConfigError, match="nothing_of_this_name"):
        replica_of("asr", "nothing_of_this_name")
