# mypy: ignore-errors
"""pipecat's OpenAIRealtimeLLMService in a pipeline. `python pipecat_client.py URL CLIP`: JSON."""

import asyncio
import json
import sys
import wave

from loguru import logger
from pipecat.adapters.schemas.function_schema import FunctionSchema
from pipecat.adapters.schemas.tools_schema import ToolsSchema
from pipecat.frames.frames import (
    ErrorFrame,
    InputAudioRawFrame,
    LLMRunFrame,
    LLMTextFrame,
    TranscriptionFrame,
    TTSAudioRawFrame,
)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.runner import PipelineRunner
from pipecat.pipeline.task import PipelineParams, PipelineTask
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.aggregators.llm_response_universal import LLMContextAggregatorPair
from pipecat.processors.frame_processor import FrameProcessor
from pipecat.services.openai.realtime import events
from pipecat.services.openai.realtime.llm import OpenAIRealtimeLLMService

STEP_S = 0.02
TIMEOUT_S = 30


class Ear(FrameProcessor):
    """Notes what comes out of the service, and in front of it what was understood."""

    def __init__(self):
        super().__init__()
        self.text, self.audio_bytes, self.heard, self.errors = "", 0, [], []
        self.changed = asyncio.Event()

    async def process_frame(self, frame, direction):
        await super().process_frame(frame, direction)
        match frame:
            case LLMTextFrame():
                self.text += frame.text
            case TTSAudioRawFrame():
                self.audio_bytes += len(frame.audio)
            case TranscriptionFrame():
                self.heard.append(frame.text)
            case ErrorFrame():
                self.errors.append(frame.error)
        self.changed.set()
        await self.push_frame(frame, direction)

    async def until(self, is_so):
        async with asyncio.timeout(TIMEOUT_S):
            while not is_so():
                self.changed.clear()
                await self.changed.wait()


def service(url):
    turn_detection = events.TurnDetection(silence_duration_ms=400)
    heard = events.AudioInput(
        transcription=events.InputAudioTranscription(), turn_detection=turn_detection
    )
    properties = events.SessionProperties(
        instructions="Be brief.", audio=events.AudioConfiguration(input=heard)
    )
    settings = OpenAIRealtimeLLMService.Settings(
        model="gpt-realtime", session_properties=properties
    )
    base_url = url.replace("http", "ws", 1) + "/v1/realtime"
    return OpenAIRealtimeLLMService(api_key="key", base_url=base_url, settings=settings)


async def main(url, clip):
    called = []
    llm = service(url)

    async def set_light(params):
        called.append(dict(params.arguments))
        await params.result_callback({"state": "on"})

    llm.register_function("set_light", set_light)
    schema = FunctionSchema(
        name="set_light",
        description="Turns a light on or off.",
        properties={"on": {"type": "boolean"}},
        required=["on"],
    )
    context = LLMContext(
        [{"role": "user", "content": "light on please"}], ToolsSchema(standard_tools=[schema])
    )
    both = LLMContextAggregatorPair(context)
    above, ear = Ear(), Ear()
    task = PipelineTask(
        Pipeline([above, both.user(), llm, ear, both.assistant()]),
        params=PipelineParams(audio_in_sample_rate=24_000, audio_out_sample_rate=24_000),
        idle_timeout_secs=None,
    )

    async def drive():
        await task.queue_frames([LLMRunFrame()])
        await ear.until(lambda: "It says on." in ear.text and ear.audio_bytes > 0)
        written, ear.text = ear.text, ""
        with wave.open(clip) as file:
            pcm = file.readframes(file.getnframes()) + bytes(2 * 24_000 * 2)
        for at in range(0, len(pcm) - 960, 960):
            await task.queue_frames([InputAudioRawFrame(pcm[at : at + 960], 24_000, 1)])
            await asyncio.sleep(STEP_S)
        await ear.until(lambda: "It says on." in ear.text)
        await task.cancel()
        return written

    _, written = await asyncio.gather(PipelineRunner(handle_sigint=False).run(task), drive())
    told = {
        "called": called,
        "written": written,
        "spoken": ear.text,
        "audio_bytes": ear.audio_bytes,
        "errors": above.errors + ear.errors,
    }
    print(json.dumps(told))


logger.remove()
asyncio.run(main(*sys.argv[1:]))
