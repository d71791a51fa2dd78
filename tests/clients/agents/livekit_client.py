# mypy: ignore-errors
"""Drives LiveKit's RealtimeModel as an agent does. `python livekit_client.py URL CLIP`: JSON."""

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
CUT_MS = 300
"Where an answer is cut: the client has had more of its sound by then."


@function_tool
async def set_light(on: bool) -> str:
    """Turns a light on or off."""
    return '{"state":"on"}'


async def taken(generation):
    """Collects the texts, audio samples, message ids and tool calls of a response."""
    texts, samples, ids = [], 0, []

    async def messages():
        nonlocal samples
        async for message in generation.message_stream:
            ids.append(message.message_id)
            texts.append("".join([part async for part in message.text_stream]))
            async for frame in message.audio_stream:
                samples += frame.samples_per_channel

    async def calls():
        return [call async for call in generation.function_stream]

    async with asyncio.timeout(TIMEOUT_S):
        _, called = await asyncio.gather(messages(), calls())
    return texts, samples, ids, called


async def ask(session, text):
    context = session.chat_ctx.copy()
    context.add_message(role="user", content=text)
    await session.update_chat_ctx(context)
    async with asyncio.timeout(TIMEOUT_S):
        return await taken(await session.generate_reply())


async def answer_call(session, call):
    context = session.chat_ctx.copy()
    output = llm.FunctionCallOutput(
        call_id=call.call_id, name=call.name, output=await set_light(on=True), is_error=False
    )
    context.items.append(output)
    await session.update_chat_ctx(context)
    async with asyncio.timeout(TIMEOUT_S):
        return await taken(await session.generate_reply())


async def speak(session, path, generated):
    with wave.open(path) as clip:
        pcm = clip.readframes(clip.getnframes())
    pcm += bytes(2 * 24_000 * 2)
    for at in range(0, len(pcm) - 960, 960):
        session.push_audio(rtc.AudioFrame(pcm[at : at + 960], 24_000, 1, 480))
        await asyncio.sleep(STEP_S)
    async with asyncio.timeout(TIMEOUT_S):
        return await taken(await generated.get())


async def interrupt(session, events):
    """Interrupts a long answer as LiveKit's agents do; returns what is left of it."""
    context = session.chat_ctx.copy()
    context.add_message(role="user", content="never end")
    await session.update_chat_ctx(context)
    async with asyncio.timeout(TIMEOUT_S):
        generation = await session.generate_reply()
        message = await anext(aiter(generation.message_stream))
        heard_ms = 0.0
        async for frame in message.audio_stream:
            heard_ms += 1000 * frame.duration
            if heard_ms > CUT_MS:
                break
        running = session.has_active_generation
        session.interrupt()
        session.truncate(message_id=message.message_id, modalities=["audio"], audio_end_ms=CUT_MS)
        stopped = await told(events, "response.done", "conversation.item.truncated")
        retrieve = {"type": "conversation.item.retrieve", "item_id": message.message_id}
        session.send_event(retrieve)
        kept = await told(events, "conversation.item.retrieved")
    item = kept["conversation.item.retrieved"]["item"]
    return {
        "running": running,
        "status": stopped["response.done"]["response"]["status"],
        "item": item["status"],
        "left": item["content"][0]["transcript"],
    }


async def told(events, *kinds):
    """Returns events by type, when one of each type has arrived."""
    seen = {}
    while not seen.keys() >= set(kinds):
        event = await events.get()
        seen[event["type"]] = event
    return seen


async def main(url, clip):
    errors, generated, heard = [], asyncio.Queue(), []
    events = asyncio.Queue()
    async with aiohttp.ClientSession() as http:
        model = openai.realtime.RealtimeModel(
            base_url=f"{url}/v1", api_key="key", model="gpt-realtime", http_session=http
        )
        session = model.session()
        session.on("error", lambda error: errors.append(str(error.error)))
        session.on("openai_server_event_received", events.put_nowait)
        session.on(
            "generation_created",
            lambda event: None if event.user_initiated else generated.put_nowait(event),
        )
        session.on(
            "input_audio_transcription_completed",
            lambda event: heard.append(event.transcript) if event.is_final else None,
        )
        await session.update_instructions("Be brief.")
        await session.update_tools([set_light])
        texts, samples, _, calls = await ask(session, "light on please")
        result = await answer_call(session, calls[0])
        spoken = await speak(session, clip, generated)
        counted = await ask(session, "count")
        session.truncate(message_id=counted[2][0], modalities=["audio"], audio_end_ms=300)
        await told(events, "conversation.item.truncated")
        while not events.empty():
            events.get_nowait()
        interrupted = await interrupt(session, events)
        before = len(errors)
        session.truncate(message_id="item_nowhere", modalities=["audio"], audio_end_ms=300)
        refused = (await told(events, "error"))["error"]["error"]["code"]
        await session.aclose()
    report = {
        "called": [calls[0].name, json.loads(calls[0].arguments)],
        "words": texts,
        "samples": samples,
        "result": result[0],
        "heard": heard,
        "spoken": spoken[0],
        "counted": counted[0],
        "interrupted": interrupted,
        "errors": before,
        "refused": refused,
    }
    print(json.dumps(report))


asyncio.run(main(*sys.argv[1:]))
