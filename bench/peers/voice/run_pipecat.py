# mypy: disable-error-code="import-not-found, misc, no-untyped-call, untyped-decorator"
"""Bot as pipecat's users write it, with stub engines; runs in pipecat's environment.

    python run_pipecat.py --port PORT --wait MS --stubs ASR,LLM,TTS [--vad-stop MS]

STT, LLM and TTS are subclasses of pipecat's own base classes; everything between them is pipecat's.
A client posts its SDP offer to /api/offer, as pipecat's own clients do. Pipecat is imported inside
of functions, so that Earshot's checks can read this file without it.
"""

import argparse
import asyncio
import math
import os
import sys
from array import array
from collections.abc import AsyncGenerator
from threading import Thread
from typing import Any

from aiohttp import web

RATE_HZ = 24_000
TONE_MS, TONE_HZ, LEVEL = 400, 500, 8000
WORDS = "turn on the kitchen lights"
ANSWER = "All the lights in the kitchen are on now."


def stub_stt(delay_s: float) -> Any:
    """Makes an STT that recognises an utterance when the VAD reports its end."""
    from pipecat.frames.frames import TranscriptionFrame
    from pipecat.services.stt_service import SegmentedSTTService

    class PipecatStubStt(SegmentedSTTService):
        async def run_stt(self, audio: bytes) -> AsyncGenerator[Any, None]:
            await asyncio.sleep(delay_s)
            yield TranscriptionFrame(WORDS, "", "")

    return PipecatStubStt(ttfs_p99_latency=delay_s)


def stub_llm(delay_s: float) -> Any:
    """Makes an LLM that answers any text after a set time."""
    from pipecat.frames import frames
    from pipecat.services.llm_service import LLMService

    class PipecatStubLlm(LLMService):
        async def process_frame(self, frame: object, direction: object) -> None:
            await super().process_frame(frame, direction)
            if not isinstance(frame, frames.LLMContextFrame):
                await self.push_frame(frame, direction)
                return
            await self.push_frame(frames.LLMFullResponseStartFrame())
            await asyncio.sleep(delay_s)
            for word in ANSWER.split():
                await self.push_frame(frames.LLMTextFrame(f"{word} "))
            await self.push_frame(frames.LLMFullResponseEndFrame())

    return PipecatStubLlm()


def stub_tts(delay_s: float) -> Any:
    """Makes a TTS that speaks a tone, loud from its first sample."""
    from pipecat.frames.frames import TTSAudioRawFrame
    from pipecat.services.tts_service import TTSService

    sound = tone()

    class PipecatStubTts(TTSService):
        async def run_tts(self, text: str, context_id: str) -> AsyncGenerator[Any, None]:
            await asyncio.sleep(delay_s)
            yield TTSAudioRawFrame(sound, RATE_HZ, 1, context_id=context_id)

    return PipecatStubTts(push_start_frame=True, push_stop_frames=True, sample_rate=RATE_HZ)


def tone() -> bytes:
    """Returns a cosine as PCM: it begins at its loudest."""
    samples = range(TONE_MS * RATE_HZ // 1000)
    wave = (math.cos(2 * math.pi * TONE_HZ * n / RATE_HZ) for n in samples)
    return array("h", (int(LEVEL * value) for value in wave)).tobytes()


def context_of(options: argparse.Namespace) -> Any:
    """Makes the history, with the strategy that decides when a turn is over.

    The VAD waits for `--vad-stop`, or for the whole wait; the strategy waits for the rest.
    """
    from pipecat.audio.vad.silero import SileroVADAnalyzer
    from pipecat.audio.vad.vad_analyzer import VADParams
    from pipecat.processors.aggregators import llm_response_universal as aggregators
    from pipecat.processors.aggregators.llm_context import LLMContext
    from pipecat.turns.user_stop import SpeechTimeoutUserTurnStopStrategy
    from pipecat.turns.user_turn_strategies import UserTurnStrategies

    vad_ms = options.wait if options.vad_stop is None else options.vad_stop
    rest_s = max(0.0, options.wait - vad_ms) / 1000
    stop = SpeechTimeoutUserTurnStopStrategy(user_speech_timeout=rest_s)
    user = aggregators.LLMUserAggregatorParams(
        vad_analyzer=SileroVADAnalyzer(params=VADParams(stop_secs=vad_ms / 1000)),
        user_turn_strategies=UserTurnStrategies(stop=[stop]),
    )
    return aggregators.LLMContextAggregatorPair(LLMContext(), user_params=user)


async def converse(connection: Any, options: argparse.Namespace) -> None:
    """Serves one call until it is over."""
    from pipecat.pipeline.pipeline import Pipeline
    from pipecat.pipeline.worker import PipelineParams, PipelineWorker
    from pipecat.transports.base_transport import TransportParams
    from pipecat.transports.smallwebrtc.transport import SmallWebRTCTransport
    from pipecat.workers.runner import WorkerRunner

    asr_s, llm_s, tts_s = (float(ms) / 1000 for ms in options.stubs.split(","))
    params = TransportParams(audio_in_enabled=True, audio_out_enabled=True)
    transport, context = SmallWebRTCTransport(connection, params), context_of(options)
    parts = [
        transport.input(),
        stub_stt(asr_s),
        context.user(),
        stub_llm(llm_s),
        stub_tts(tts_s),
        transport.output(),
        context.assistant(),
    ]
    worker = PipelineWorker(Pipeline(parts), params=PipelineParams(audio_out_sample_rate=RATE_HZ))

    @transport.event_handler("on_client_disconnected")
    async def left(*_: Any) -> None:
        await worker.cancel()

    runner = WorkerRunner(handle_sigint=False)
    await runner.add_workers(worker)
    await runner.run()


def serve(options: argparse.Namespace) -> None:
    from loguru import logger
    from pipecat.transports.smallwebrtc import request_handler

    logger.remove()  # its default logging costs time at every frame
    logger.add(sys.stderr, level="WARNING")
    handler, calls = request_handler.SmallWebRTCRequestHandler(), set[asyncio.Task[None]]()

    async def offer(request: web.Request) -> web.Response:
        async def begin(connection: object) -> None:
            call = asyncio.create_task(converse(connection, options))
            calls.add(call)
            call.add_done_callback(calls.discard)

        asked = request_handler.SmallWebRTCRequest.from_dict(await request.json())
        return web.json_response(await handler.handle_web_request(asked, begin))

    app = web.Application()
    app.router.add_post("/api/offer", offer)
    web.run_app(app, host="127.0.0.1", port=options.port, print=None)


def leave_with_parent() -> None:
    """Ends this process when its stdin is closed."""
    sys.stdin.buffer.read()
    os._exit(0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--wait", type=float, required=True)
    parser.add_argument("--vad-stop", type=float)
    parser.add_argument("--stubs", required=True)
    # The parent process holds our stdin open: when it ends, so does this process.
    Thread(target=leave_with_parent, daemon=True).start()
    serve(parser.parse_args())
