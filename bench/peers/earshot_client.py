"""Earshot as one of the compared systems: `earshot serve`, used by the Realtime API over
WebSocket."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.asr.streaming import StreamingClient, open_streaming_client
from bench.client.realtime import ConnectionLost, SessionRequest
from bench.peers.clients import FINAL_TIMEOUT_S
from bench.peers.systems import AsrClient, UtteranceResult
from bench.server.own_server import OwnServer, own_server
from bench.tools.utterance_audio import WAIT_MS, BenchUtterance

SESSION_REQUEST = SessionRequest(
    language="en", turn_detection="server_vad", silence_ms=WAIT_MS, creates_response=False
)
"The server itself detects the end of speech, and waits as long as the others."


@dataclass(frozen=True, slots=True)
class EarshotSystem:
    """A running Earshot; a `SystemUnderTest`."""

    name: str
    server: OwnServer

    @property
    def pid(self) -> int:
        return self.server.pid

    @asynccontextmanager
    async def client(self) -> AsyncGenerator[AsrClient, None]:
        """Yields a client with one connection for all utterances."""
        async with open_streaming_client(
            self.server.address, "ws", SESSION_REQUEST, FINAL_TIMEOUT_S
        ) as client:
            yield _EarshotClient(client)


@dataclass(frozen=True, slots=True)
class _EarshotClient:
    client: StreamingClient

    async def say(self, utterance: BenchUtterance) -> UtteranceResult:
        """See `AsrClient`."""
        span = (utterance.begin, utterance.end)
        answer = await self.client.say(utterance.pcm, span)
        if answer.error:
            raise ConnectionLost(f"earshot: {answer.error}")
        now = asyncio.get_running_loop().time()
        return UtteranceResult(answer.text, answer.took_ms, now)


@asynccontextmanager
async def run_earshot(
    name: str, model: Path, options: Mapping[str, str], folder: Path
) -> AsyncGenerator[EarshotSystem, None]:
    """Runs Earshot with this model while the body runs. options: the recogniser's, as TOML
    values."""
    file = folder / f"{name}.toml"
    file.write_text(recogniser_settings(model, options))
    async with own_server(["--config", str(file)]) as server:
        yield EarshotSystem(name, server)


def recogniser_settings(model: Path, options: Mapping[str, str]) -> str:
    """Returns the text of a configuration file. options: the recogniser's, as TOML values."""
    given = {"model": f'"{model}"', "compute_type": '"int8"', **options}
    lines = ("[asr]", 'engine = "faster_whisper"', "[asr.options]")
    return "\n".join((*lines, *(f"{key} = {text}" for key, text in given.items()))) + "\n"
