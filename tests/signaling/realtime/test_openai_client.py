"""The official Python client, unchanged, with the settings that its users send."""

from base64 import b64encode

import numpy as np
import pytest
from openai import AsyncOpenAI

from tests.signaling.realtime.servers import Server, against

pytestmark = pytest.mark.live

LEVEL_ONE = 1000
"The level that the scripted recogniser takes for the word `one`."


def test_the_official_client_has_a_spoken_turn() -> None:
    async def scene(server: Server) -> None:
        http = f"{server.client._base_url}/v1"
        async with (
            AsyncOpenAI(
                api_key="key", base_url=http, websocket_base_url=http.replace("http", "ws", 1)
            ) as stock,
            stock.realtime.connect(model="gpt-realtime") as connection,
        ):
            await connection.session.update(
                session={
                    "type": "realtime",
                    "instructions": "Be brief.",
                    "audio": {
                        "input": {
                            "transcription": {"model": "gpt-4o-transcribe", "language": "en"},
                            "turn_detection": {"type": "server_vad", "silence_duration_ms": 300},
                        },
                        "output": {"voice": "marin"},
                    },
                }
            )
            for level, pieces in ((0, 3), (LEVEL_ONE, 6), (0, 10)):
                piece = b64encode(np.full(2400, level, "<i2").tobytes()).decode()
                for _ in range(pieces):
                    await connection.input_audio_buffer.append(audio=piece)
            heard, said, sound = "", "", 0
            async for event in connection:
                assert event.type != "error", event
                if event.type == "conversation.item.input_audio_transcription.completed":
                    heard = event.transcript
                elif event.type == "response.output_audio.delta":
                    sound += len(event.delta)
                elif event.type == "response.output_audio_transcript.done":
                    said = event.transcript
                elif event.type == "response.done":
                    break
        assert (heard, said.strip()) == ("one", "you said one.")
        assert sound > 0

    against(scene)
