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
    InterruptionFrame,
    LLMRunFrame,
    LLMTextFrame,
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
HEARD_S = 1


class Ear(FrameProcessor):
    """Notes what comes out of the service, and in front of it what was understood."""

    def __init__(self):
        super().__init__()
        self.text, self.audio_bytes, self.interruptions, self.errors = "", 0, 0, []
        self.changed = asyncio.Event()

    async def process_frame(self, frame, direction):
        await super().process_frame(frame, direction)
        match frame:
            case LLMTextFrame():
                self.text += frame.text
            case TTSAudioRawFrame():
                self.audio_bytes += len(frame.audio)
            case InterruptionFrame():
                self.interruptions += 1
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
    called, answers = [], []
    llm = service(url)

    @llm.event_handler("on_conversation_item_created")
    async def note(_, item_id, item):
        if item.role == "assistant":
            answers.append(item_id)

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

    async def ask(text):
        """The id of the answer, when some of it was heard."""
        ear.audio_bytes = 0
        part = events.ItemContent(type="input_text", text=text)
        item = events.ConversationItem(type="message", role="user", content=[part])
        await llm.send_client_event(events.ConversationItemCreateEvent(item=item))
        await llm.send_client_event(events.ResponseCreateEvent())
        await ear.until(lambda: ear.audio_bytes > 0)
        await asyncio.sleep(HEARD_S)
        return answers[-1]

    async def speak():
        with wave.open(clip) as file:
            pcm = file.readframes(file.getnframes()) + bytes(2 * 24_000 * 2)
        for at in range(0, len(pcm) - 960, 960):
            await task.queue_frames([InputAudioRawFrame(pcm[at : at + 960], 24_000, 1)])
            await asyncio.sleep(STEP_S)
        await ear.until(lambda: "It says on." in ear.text)

    async def kept(item_id):
        async with asyncio.timeout(TIMEOUT_S):
            return (await llm.retrieve_conversation_item(item_id)).content[0].transcript

    async def drive():
        told = {}
        await task.queue_frames([LLMRunFrame()])
        await ear.until(lambda: "It says on." in ear.text and ear.audio_bytes > 0)
        told["written"], ear.text = ear.text, ""
        await speak()
        told["spoken"] = ear.text
        stopped = await ask("count")
        ear.interruptions = 0
        await task.queue_frames([InterruptionFrame()])
        await ear.until(lambda: ear.interruptions > 0)
        told["stopped"] = await kept(stopped)
        spoken_over, ear.text = await ask("count on"), ""
        await speak()
        told["spoken_over"] = await kept(spoken_over)
        [unknown] = await asyncio.gather(kept("item_nowhere"), return_exceptions=True)
        told["unknown"] = str(unknown)
        told["before"] = above.errors + ear.errors
        await llm.send_client_event(events.ConversationItemDeleteEvent(item_id="item_nowhere"))
        await above.until(lambda: above.errors)
        told["errors"] = above.errors
        await task.cancel()
        return told

    _, told = await asyncio.gather(PipelineRunner(handle_sigint=False).run(task), drive())
    print(json.dumps({"called": called, **told}))


logger.remove()
asyncio.run(main(*sys.argv[1:]))
