"""One end of a call, with a record of its callbacks."""

import asyncio
from dataclasses import dataclass, field

from core.audio import AudioFrame
from media.webrtc.peer import CloseReason, Peer, PeerCallbacks, PeerSettings
from tests.media.signals import tone

DEADLINE_S = 10
"The deadline for steps that take 50 ms on a quiet machine."


@dataclass
class End:
    """One side of a call, with a record of its callbacks."""

    hz: float
    settings: PeerSettings = field(default_factory=PeerSettings)
    frames: list[AudioFrame] = field(default_factory=list)
    messages: asyncio.Queue[str | bytes] = field(default_factory=asyncio.Queue)
    closed: list[CloseReason] = field(default_factory=list)
    opened: asyncio.Event = field(default_factory=asyncio.Event)
    connected: asyncio.Event = field(default_factory=asyncio.Event)
    heard_a_second: asyncio.Event = field(default_factory=asyncio.Event)
    ticks: int = 0

    def __post_init__(self) -> None:
        self.peer = Peer(self.callbacks(), self.settings)

    def callbacks(self) -> PeerCallbacks:
        return PeerCallbacks(
            pull=self.pull,
            on_frame=self.on_frame,
            on_message=self.messages.put_nowait,
            on_open=self.opened.set,
            on_connected=self.connected.set,
            on_closed=self.closed.append,
        )

    def pull(self) -> AudioFrame:
        rate_hz = self.settings.playout_rate_hz
        start = self.ticks * rate_hz // 50
        self.ticks += 1
        return AudioFrame(tone(self.hz, rate_hz // 50, rate_hz, start), rate_hz, start)

    def on_frame(self, frame: AudioFrame) -> None:
        self.frames.append(frame)
        if len(self.frames) >= 50:
            self.heard_a_second.set()


async def all_tasks_ended() -> None:
    """Waits for the end of all tasks, aiortc's included; its checks see a closed socket after 20
    ms."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    if others:
        async with asyncio.timeout(DEADLINE_S):
            await asyncio.wait(others)
    assert asyncio.all_tasks() == {asyncio.current_task()}
