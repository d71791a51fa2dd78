# mypy: ignore-errors
"""Drives LiveKit's GPTLiveModel as agents do. `python livekit_live_client.py URL CLIP`: JSON."""

import asyncio
import json
import sys
import wave

import aiohttp
from livekit import rtc
from livekit.agents import llm
from livekit.agents.llm import function_tool
from livekit.plugins import openai

STEP_S = 0.02
TIMEOUT_S = 30
RESULT = "It says on."


@function_tool
async def set_light(on: bool) -> str:
    """Turns a light on or off."""
    return '{"state":"on"}'


async def speak(session, path):
    with wave.open(path) as clip:
        pcm = clip.readframes(clip.getnframes())
    pcm += bytes(2 * 24_000 * 3)
    for at in range(0, len(pcm) - 960, 960):
        session.push_audio(rtc.AudioFrame(pcm[at : at + 960], 24_000, 1, 480))
        await asyncio.sleep(STEP_S)


async def main(url, clip):
    heard, said, errors, samples = [], [], [], 0
    calls, spoken = asyncio.Queue(), asyncio.Event()

    def note_words(event):
        said.append(event.text)
        if RESULT in event.text:
            spoken.set()

    async def play(session):
        nonlocal samples
        async for sound in session.audio_stream:
            samples += sound.frame.samples_per_channel

    async with aiohttp.ClientSession() as http:
        model = openai.realtime.GPTLiveModel(base_url=f"{url}/v1", api_key="key", http_session=http)
        session = model.session()
        session.on("error", lambda error: errors.append(str(error.error)))
        session.on("function_call", calls.put_nowait)
        session.on("transcript_delta", note_words)
        session.on(
            "input_audio_transcription_completed",
            lambda event: heard.append(event.transcript) if event.is_final else None,
        )
        context = llm.ChatContext.empty()
        await session._update_session(instructions="Be brief.", chat_ctx=context, tools=[set_light])
        playing = asyncio.create_task(play(session))
        await speak(session, clip)
        async with asyncio.timeout(TIMEOUT_S):
            call = await calls.get()
            output = llm.FunctionCallOutput(
                call_id=call.call_id,
                name=call.name,
                output=await set_light(on=True),
                is_error=False,
            )
            await session._append_items([output])
            await spoken.wait()
        await session.aclose()
        await playing
    report = {
        "heard": heard,
        "said": "".join(said),
        "called": [call.name, json.loads(call.arguments)],
        "samples": samples,
        "errors": errors,
    }
    print(json.dumps(report))


asyncio.run(main(*sys.argv[1:]))
