"""Two peers in one process and a link that loses packets, for benchmarks and tests."""

import asyncio
from collections.abc import Callable, Coroutine

import numpy as np
from aiortc import MediaStreamTrack, RTCPeerConnection
from aiortc.mediastreams import MediaStreamError
from av import AudioFrame as AvFrame

from core.audio import ASR_RATE_HZ, AudioFrame
from media.webrtc.aiortc_internals.rtp import RtpSendPath, receive_rtp
from media.webrtc.aiortc_internals.transport import lose_packets
from media.webrtc.rtp.tracks import TrackSink, TrackSource

FrameSource = Callable[[], AudioFrame | None]
"Returns the next frame to send; None for silence."
FrameSink = Callable[[AudioFrame], None]
"Takes a received frame."


async def loopback(
    pull: FrameSource,
    on_frame: FrameSink,
    done: asyncio.Event,
    *,
    depth: int | None,
    is_lost: Callable[[], bool] = lambda: False,
) -> None:
    """Sends what `pull` returns through aiortc to `on_frame` (16 kHz) until `done` is set.

    `depth`: depth of our jitter buffer; None leaves aiortc's own in place, and reads it as every
    aiortc application does. `is_lost`: is called for each packet that arrives; True drops it.
    """
    sender, receiver = RTCPeerConnection(), RTCPeerConnection()
    RtpSendPath(sender.addTransceiver("audio").sender, TrackSink(pull).run)
    readers: list[Coroutine[None, None, None]] = []

    @receiver.on("track")
    def on_track(track: MediaStreamTrack) -> None:
        (rtp,) = receiver.getReceivers()
        lose_packets(rtp, is_lost)
        if depth is None:
            readers.append(_read(track, on_frame))
        else:
            receive_rtp(rtp, LoopbackReceiver(TrackSource(depth), on_frame))

    try:
        await sender.setLocalDescription(await sender.createOffer())
        await receiver.setRemoteDescription(sender.localDescription)
        await receiver.setLocalDescription(await receiver.createAnswer())
        await sender.setRemoteDescription(receiver.localDescription)
        async with asyncio.TaskGroup() as tasks:
            for reader in readers:
                tasks.create_task(reader)
            await done.wait()
            await sender.close()
            await receiver.close()
    finally:
        await sender.close()
        await receiver.close()


class LoopbackReceiver:
    """Passes received packets to a TrackSource, as the sink for `receive_rtp`."""

    def __init__(self, source: TrackSource, on_frame: FrameSink) -> None:
        self._source, self._on_frame = source, on_frame

    def __call__(self, sequence_number: int, timestamp: int, payload: bytes) -> None:
        for frame in self._source.push(sequence_number, timestamp, payload):
            self._on_frame(frame)


async def _read(track: MediaStreamTrack, on_frame: FrameSink) -> None:
    """Reads 48 kHz stereo from aiortc until the track ends."""
    start = 0
    try:
        while True:
            frame = await track.recv()
            assert isinstance(frame, AvFrame)
            left = frame.to_ndarray()[0, ::6]  # every third sample of the left channel: 16 kHz
            on_frame(AudioFrame(left.astype(np.int16), ASR_RATE_HZ, start))
            start += len(left)
    except MediaStreamError:
        return
