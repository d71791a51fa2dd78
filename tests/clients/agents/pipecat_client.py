# mypy: ignore-errors
"""Drives pipecat's OpenAIRealtimeLLMService: `python pipecat_client.py URL CLIP` prints JSON."""

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
    """Records what the service emits; in front of the service, what was transcribed."""

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


class Agent:
    """The service between two recorders, with a light to switch."""

    def __init__(self, url):
        self.called, self.answers = [], []
        self.llm = service(url)
        self.llm.event_handler("on_conversation_item_created")(self.note)
        self.llm.register_function("set_light", self.set_light)
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
        self.above, self.ear = Ear(), Ear()
        self.task = PipelineTask(
            Pipeline([self.above, both.user(), self.llm, self.ear, both.assistant()]),
            params=PipelineParams(audio_in_sample_rate=24_000, audio_out_sample_rate=24_000),
            idle_timeout_secs=None,
        )

    async def note(self, _, item_id, item):
        if item.role == "assistant":
            self.answers.append(item_id)

    async def set_light(self, params):
        self.called.append(dict(params.arguments))
        await params.result_callback({"state": "on"})

    async def ask(self, text):
        """Returns the id of the answer once some of its audio has arrived."""
        self.ear.audio_bytes = 0
        part = events.ItemContent(type="input_text", text=text)
        item = events.ConversationItem(type="message", role="user", content=[part])
        await self.llm.send_client_event(events.ConversationItemCreateEvent(item=item))
        await self.llm.send_client_event(events.ResponseCreateEvent())
        await self.ear.until(lambda: self.ear.audio_bytes > 0)
        await asyncio.sleep(HEARD_S)
        return self.answers[-1]

    async def speak(self, clip):
        """Speaks and returns the answer."""
        self.ear.text = ""
        with wave.open(clip) as file:
            pcm = file.readframes(file.getnframes()) + bytes(2 * 24_000 * 2)
        for at in range(0, len(pcm) - 960, 960):
            await self.task.queue_frames([InputAudioRawFrame(pcm[at : at + 960], 24_000, 1)])
            await asyncio.sleep(STEP_S)
        await self.ear.until(lambda: "It says on." in self.ear.text)
        return self.ear.text

    async def interrupt(self):
        self.ear.interruptions = 0
        await self.task.queue_frames([InterruptionFrame()])
        await self.ear.until(lambda: self.ear.interruptions > 0)

    async def kept(self, item_id):
        """Returns what the server keeps of an answer."""
        async with asyncio.timeout(TIMEOUT_S):
            return (await self.llm.retrieve_conversation_item(item_id)).content[0].transcript

    async def drive(self, clip):
        told, ear = {}, self.ear
        await self.task.queue_frames([LLMRunFrame()])
        await ear.until(lambda: "It says on." in ear.text and ear.audio_bytes > 0)
        told["written"] = ear.text
        told["spoken"] = await self.speak(clip)
        stopped = await self.ask("count")
        await self.interrupt()
        told["stopped"] = await self.kept(stopped)
        spoken_over = await self.ask("count on")
        await self.speak(clip)
        told["spoken_over"] = await self.kept(spoken_over)
        [unknown] = await asyncio.gather(self.kept("item_nowhere"), return_exceptions=True)
        told["unknown"] = str(unknown)
        told["before"] = self.above.errors + ear.errors
        nowhere = events.ConversationItemDeleteEvent(item_id="item_nowhere")
        await self.llm.send_client_event(nowhere)
        await self.above.until(lambda: self.above.errors)
        told["errors"] = self.above.errors
        await self.task.cancel()
        return told


async def main(url, clip):
    agent = Agent(url)
    running = PipelineRunner(handle_sigint=False).run(agent.task)
    _, told = await asyncio.gather(running, agent.drive(clip))
    print(json.dumps({"called": agent.called, **told}))


logger.remove()
asyncio.run(main(*sys.argv[1:]))
