# mypy: ignore-errors
"""Uses OpenAI's Python client as its users do. `python client.py URL CLIP`: JSON."""

import asyncio
import json
import sys
import wave
from base64 import b64decode, b64encode

import openai
from openai import AsyncOpenAI

TIMEOUT_S = 60
PIECE_BYTES = 4800
"0.1 s at 24 kHz."

SET_LIGHT = {
    "type": "function",
    "name": "set_light",
    "description": "Turns a light on or off.",
    "parameters": {
        "type": "object",
        "properties": {"on": {"type": "boolean"}},
        "required": ["on"],
    },
}


async def until(connection, kind):
    """Returns the events up to the first of this type; fails at an error event."""
    events = []
    async for event in connection:
        if event.type == "error":
            raise AssertionError(event)
        events.append(event)
        if event.type == kind:
            return events
    raise AssertionError(f"the connection ended before {kind}")


def of(kind, events):
    return [event for event in events if event.type == kind]


async def ask(connection, words):
    part = {"type": "input_text", "text": words}
    item = {"type": "message", "role": "user", "content": [part]}
    await connection.conversation.item.create(item=item)
    await connection.response.create()


async def spoken_turn(connection, clip):
    with wave.open(clip) as recording:
        pcm = recording.readframes(recording.getnframes()) + bytes(48_000)
    for at in range(0, len(pcm), PIECE_BYTES):
        piece = b64encode(pcm[at : at + PIECE_BYTES]).decode()
        await connection.input_audio_buffer.append(audio=piece)
    events = await until(connection, "response.done")
    heard = of("conversation.item.input_audio_transcription.completed", events)
    deltas = of("response.output_audio.delta", events)
    return {
        "heard": [event.transcript for event in heard],
        "started": len(of("input_audio_buffer.speech_started", events)),
        "said": [e.transcript for e in of("response.output_audio_transcript.done", events)],
        "soundBytes": sum(len(b64decode(event.delta)) for event in deltas),
        "called": await answer_call(connection, events[-1].response),
    }


async def answer_call(connection, response):
    """Runs the called tool and returns what the assistant says about the result."""
    [call] = [item for item in response.output if item.type == "function_call"]
    output = '{"state":"on"}'
    result = {"type": "function_call_output", "call_id": call.call_id, "output": output}
    await connection.conversation.item.create(item=result)
    await connection.response.create()
    done = (await until(connection, "response.done"))[-1].response
    [part] = done.output[0].content
    return [call.name, json.loads(call.arguments), part.text or part.transcript]


async def text_turn(connection):
    await connection.session.update(session={"type": "realtime", "output_modalities": ["text"]})
    await until(connection, "session.updated")
    await ask(connection, "light on please")
    events = await until(connection, "response.done")
    arguments = of("response.function_call_arguments.delta", events)
    told = {
        "said": "".join(event.delta for event in of("response.output_text.delta", events)),
        "arguments": "".join(event.delta for event in arguments),
        "called": await answer_call(connection, events[-1].response),
    }
    await connection.session.update(session={"type": "realtime", "output_modalities": ["audio"]})
    await until(connection, "session.updated")
    return told


async def interruption(connection):
    """Truncates a long answer to the audio that was played, and cancels it."""
    await ask(connection, "never end")
    sound = 0
    while sound < PIECE_BYTES * 5:
        delta = (await until(connection, "response.output_audio.delta"))[-1]
        sound += len(b64decode(delta.delta))
    item_id = delta.item_id
    await connection.conversation.item.truncate(item_id=item_id, content_index=0, audio_end_ms=300)
    await until(connection, "conversation.item.truncated")
    await connection.response.cancel()
    done = (await until(connection, "response.done"))[-1].response
    await connection.conversation.item.retrieve(item_id=item_id)
    item = (await until(connection, "conversation.item.retrieved"))[-1].item
    return {
        "status": [done.status, done.status_details.reason, item.status],
        "left": item.content[0].transcript,
    }


async def error(connection):
    await connection.response.cancel(event_id="late")
    event = await connection.recv()
    await ask(connection, "count")  # the connection lives
    done = (await until(connection, "response.done"))[-1].response
    return [event.type, event.error.code, event.error.event_id, done.status]


async def main(url, clip):
    client = AsyncOpenAI(
        api_key="key",
        base_url=f"{url}/v1",
        websocket_base_url=f"{url.replace('http', 'ws', 1)}/v1",
    )
    async with (
        asyncio.timeout(TIMEOUT_S),
        client,
        client.realtime.connect(model="gpt-realtime") as connection,
    ):
        await connection.session.update(
            session={"type": "realtime", "instructions": "Be brief.", "tools": [SET_LIGHT]}
        )
        await until(connection, "session.updated")
        told = {
            "version": openai.__version__,
            "speech": await spoken_turn(connection, clip),
            "text": await text_turn(connection),
            "interrupted": await interruption(connection),
            "error": await error(connection),
        }
    print(json.dumps(told))


asyncio.run(main(*sys.argv[1:]))
