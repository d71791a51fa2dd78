"""The compared systems: how each is started, and how it is called."""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from bench.client.http import Address
from bench.client.realtime import ClientTransport, SessionRequest
from bench.peers.environments import VOICE_PEERS, VoiceKind, folder
from bench.peers.systems import started
from bench.peers.voice.call import UtteranceSender, realtime_line, small_webrtc_line
from bench.server.own_server import own_server
from bench.voice.stub_server import StubDelays

SystemName = Literal[
    "earshot-webrtc", "pipecat", "pipecat-early", "earshot-ws", "speech-to-speech", "s2s-hold"
]

EARLY_MS = 60
"Silence after which pipecat's recognition begins if the wait is split, as in Earshot."

HOLD_MS = 800
"Time for which speech-to-speech holds an answer back by default, so that the speech may continue."

THREADS = 1
"Threads of PyTorch and ONNX: no model but the VAD runs."


@dataclass(frozen=True, slots=True)
class VoiceConditions:
    """Conditions that are the same for all systems."""

    stubs: StubDelays
    wait_ms: int

    @property
    def request(self) -> SessionRequest:
        return SessionRequest(turn_detection="server_vad", silence_ms=self.wait_ms)


CallFactory = Callable[[], AbstractAsyncContextManager[UtteranceSender]]


@dataclass(frozen=True, slots=True)
class VoiceSystem:
    """A running system."""

    title: str
    pid: int
    call: CallFactory


TITLES: Mapping[SystemName, str] = {
    "earshot-webrtc": "**earshot**, WebRTC",
    "pipecat": f"{VOICE_PEERS['pipecat'].title}, WebRTC",
    "pipecat-early": f"pipecat 1.14.0, recognition after {EARLY_MS} ms",
    "earshot-ws": "**earshot**, WebSocket",
    "speech-to-speech": f"{VOICE_PEERS['speech-to-speech'].title}, WebSocket, no hold",
    "s2s-hold": f"speech-to-speech 1.1.0, its default hold of {HOLD_MS} ms",
}


@asynccontextmanager
async def system(
    name: SystemName, conditions: VoiceConditions, folder_path: Path
) -> AsyncGenerator[VoiceSystem, None]:
    """Runs a system while the body runs. Raises MissingPeer, ServerStartError."""
    title = TITLES[name]
    match name:
        case "earshot-webrtc" | "earshot-ws":
            transport: ClientTransport = "webrtc" if name == "earshot-webrtc" else "ws"
            config = conditions.stubs.write(folder_path)
            async with own_server(["--config", str(config)]) as own:
                line = partial(realtime_line, own.address, transport, conditions.request)
                yield VoiceSystem(title, own.pid, line)
        case "pipecat" | "pipecat-early":
            early = ["--vad-stop", str(EARLY_MS)] if name == "pipecat-early" else []
            async with _peer("pipecat", "run_pipecat.py", conditions, name, early) as (port, pid):
                yield VoiceSystem(title, pid, partial(small_webrtc_line, port))
        case _:
            hold = ["--hold", str(HOLD_MS if name == "s2s-hold" else 0)]
            script = "run_speech_to_speech.py"
            async with _peer("speech-to-speech", script, conditions, name, hold) as (port, pid):
                address = Address(f"http://127.0.0.1:{port}")
                yield VoiceSystem(
                    title, pid, partial(realtime_line, address, "ws", conditions.request)
                )


@asynccontextmanager
async def _peer(
    kind: VoiceKind, script: str, conditions: VoiceConditions, name: SystemName, more: Sequence[str]
) -> AsyncGenerator[tuple[int, int], None]:
    """Starts a peer; yields its port and process id."""
    times = conditions.stubs
    command = [
        str(Path(__file__).with_name(script)),
        *("--wait", str(conditions.wait_ms)),
        *("--stubs", f"{times.asr_ms},{times.llm_ms},{times.tts_ms}"),
        *more,
    ]
    async with started(kind, command, THREADS, folder() / f"{name}.log") as process:
        yield process.port, process.pid
