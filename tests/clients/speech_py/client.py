# mypy: ignore-errors
"""Programs of users with clients for speech and reranking. Run as `client.py URL PORT FILE`.

PORT is the port of Wyoming, FILE a WAV of one channel. Prints one JSON object.
"""

import asyncio
import json
import os
import sys
import wave

import cohere
import speech_recognition
from wyoming.asr import Transcribe, Transcript
from wyoming.audio import AudioChunk, AudioStart, AudioStop, wav_to_chunks
from wyoming.client import AsyncTcpClient
from wyoming.info import Describe, Info
from wyoming.tts import Synthesize

URL, PORT, CLIP = sys.argv[1], int(sys.argv[2]), sys.argv[3]


def heard_by_speech_recognition():
    """Returns the words as the package SpeechRecognition gets them."""
    os.environ["OPENAI_BASE_URL"] = f"{URL}/v1"
    os.environ["OPENAI_API_KEY"] = "none"
    with speech_recognition.AudioFile(CLIP) as source:
        recognizer = speech_recognition.Recognizer()
        return recognizer.recognize_openai(recognizer.record(source), model="whisper-1")


def sorted_by_cohere():
    """Returns the places and scores that each of Cohere's two clients was told."""
    ask = {"model": "tiny-reranker", "query": "cat", "documents": ["dog sits", "cat"], "top_n": 2}
    clients = {"v1": cohere.Client, "v2": cohere.ClientV2}
    return {
        version: [
            [one.index, one.relevance_score]
            for one in client(api_key="none", base_url=URL).rerank(**ask).results
        ]
        for version, client in clients.items()
    }


async def wyoming():
    """Returns what the package wyoming was told: engines, words, and how much was said."""
    async with AsyncTcpClient("127.0.0.1", PORT) as client:
        await client.write_event(Describe().event())
        info = Info.from_event(await client.read_event())
    async with AsyncTcpClient("127.0.0.1", PORT) as client:
        await client.write_event(Transcribe(language="en").event())
        with wave.open(CLIP) as clip:
            for chunk in wav_to_chunks(clip, 1024, start_event=True, stop_event=True):
                await client.write_event(chunk.event())
        while not Transcript.is_type((event := await client.read_event()).type):
            pass
        heard = Transcript.from_event(event).text
    async with AsyncTcpClient("127.0.0.1", PORT) as client:
        await client.write_event(Synthesize(text="The light is on.").event())
        sound = b""
        while not AudioStop.is_type((event := await client.read_event()).type):
            if AudioStart.is_type(event.type):
                rate_hz = AudioStart.from_event(event).rate
            elif AudioChunk.is_type(event.type):
                sound += AudioChunk.from_event(event).audio
    return {"has_asr": bool(info.asr), "heard": heard, "said_s": len(sound) / 2 / rate_hz}


told = {
    "speechrecognition": heard_by_speech_recognition(),
    "cohere": sorted_by_cohere(),
    "wyoming": asyncio.run(wyoming()),
}
print(json.dumps(told))
