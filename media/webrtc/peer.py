"""One RTCPeerConnection from start to end, as answerer or offerer: audio both ways and the event
channel.

    peer = Peer(callbacks)
    answer = await peer.answer(offer)        # or: offer(), then accept(answer)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(peer.run())        # watches, and frees everything when it ends

aiortc starts tasks of its own; `run` (or `close`) ends them all within CLOSE_TIMEOUT_S.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from aiortc import RTCIceTransport, RTCPeerConnection, RTCRtpSender, RTCSessionDescription
from aiortc.exceptions import InternalError, InvalidStateError, OperationError

from core.audio import AudioFrame
from core.errors import Conflict, RequestError
from media.webrtc.data_channel import EventChannel
from media.webrtc.dtls_failure import describe_failure
from media.webrtc.ice.candidates import candidates_in, read_candidate
from media.webrtc.peer_settings import CallbackGuard, CloseReason, PeerCallbacks, PeerSettings
from media.webrtc.rtp.call_path import PathCallbacks, RtpPacketSender, has_fast_path, open_path
from media.webrtc.rtp.tracks import TrackSink, TrackSource
from media.webrtc.sdp import SDP_ERRORS, checked_sdp, max_message_bytes
from media.webrtc.stats import ConnectionStatsMeter

if TYPE_CHECKING:
    from media.webrtc.ice.restart import IceRestart

__all__ = ["CloseReason", "Peer", "PeerCallbacks", "PeerSettings"]

logger = logging.getLogger(__name__)

CLOSE_TIMEOUT_S = 5
"""Longest time for closing. aiortc closes in milliseconds; only an unreachable TURN server delays
it."""


class Peer:
    """Our end of one WebRTC call. Create it in a running loop, for one connection. The module's
    docstring shows its use."""

    def __init__(self, callbacks: PeerCallbacks, settings: PeerSettings | None = None) -> None:
        """Creates the connection. `callbacks`: are called in the event loop. `settings`: None for
        the defaults."""
        self._callbacks = callbacks
        self._guard = CallbackGuard(self._fail)
        self.settings = settings = settings or PeerSettings()
        self._is_fast = has_fast_path(settings.ice)
        self._pc = RTCPeerConnection(settings.ice.configuration(names_servers=not self._is_fast))
        self._pc.on("connectionstatechange", self._on_connection_state)
        self._channel = EventChannel(
            on_open=self._guarded(callbacks.on_open),
            on_message=self._on_message,
            on_closed=self._on_remote_closed,
            on_lagging=lambda: self.stop(CloseReason.LAGGING),
            on_too_large=lambda: self.stop(CloseReason.EVENT_TOO_LARGE),
            max_buffered_bytes=settings.max_buffered_bytes,
            label=settings.channel_label,
        )
        self._pc.on("datachannel", self._channel.attach)
        self.source = TrackSource(settings.jitter_depth, settings.listen_rate_hz)
        "Jitter buffer and decoder of received audio. The public path does not use it."
        playout = settings.playout_rate_hz, settings.opus
        self._track = TrackSink(self._pull, *playout, self._next_sound_event, settings.pacer)
        self._path = open_path(
            self._pc, settings, PathCallbacks(self._on_packet, self._on_frames, self._play)
        )
        self._audio = self._path.audio
        codecs = RTCRtpSender.getCapabilities("audio").codecs
        opus = [codec for codec in codecs if codec.mimeType.lower() == "audio/opus"]
        self._audio.setCodecPreferences(opus)
        self._failure: Exception | None = None
        self._reason: CloseReason | None = None
        self._decided = asyncio.Event()  # set when the call is connected, or over
        self._ended = asyncio.Event()
        self._is_closing = False
        self._closed = asyncio.Event()

    @property
    def reason(self) -> CloseReason | None:
        """Reason for which the call ended; None while it lives."""
        return self._reason

    @property
    def ice(self) -> RTCIceTransport:
        """aiortc's ICE transport, which carries audio and events."""
        return self._audio.receiver.transport.transport

    @property
    def max_text_bytes(self) -> int | None:
        """Largest text that the other side accepts, by its description; None: any size, or it has
        no channel."""
        return max_message_bytes(self._pc.remoteDescription.sdp)

    def meter(self) -> ConnectionStatsMeter:
        """Returns a meter that measures the quality of the connection from now on."""
        source = self.source if self._is_fast else None
        return ConnectionStatsMeter(self._pc, self._path.selected_pair, source)

    def restart_ice(self) -> "IceRestart":
        """Returns a new ICE restart, which has yet to begin. Raises RequestError with code
        ice_restart_unsupported on the public path."""
        return self._path.restart_ice(self.settings.ice)

    async def answer(self, offer_sdp: str) -> str:
        """Takes an offer and returns the answer, with our candidates.

        Raises RequestError or PayloadTooLarge (see `media.webrtc.sdp`). The peer is then closed.
        """
        await self._set_remote(offer_sdp, "offer")
        for transceiver in self._pc.getTransceivers():
            if transceiver is not self._audio:
                transceiver.direction = "inactive"  # refuse video, or a second audio section
        try:
            return await self._set_local()
        except SDP_ERRORS as exc:  # errors in the offer that aiortc notices only now
            raise RequestError(f"this SDP cannot be used: {exc}", code="invalid_sdp") from exc

    async def offer(self) -> str:
        """Returns an offer of one audio section and the event channel, with our candidates."""
        self._channel.attach(self._pc.createDataChannel(self.settings.channel_label))
        return await self._set_local()

    async def accept(self, answer_sdp: str) -> None:
        """Takes the answer to our offer. Raises the same errors as `answer`."""
        await self._set_remote(answer_sdp, "answer")

    async def add_candidates(self, candidates: Iterable[str]) -> None:
        """Adds candidates that the other side found after its offer, as `candidate:...` lines of
        SDP. Useless ones are skipped.

        Raises RequestError if one cannot be read; none of them is then added.
        """
        for candidate in [read_candidate(line) for line in candidates]:
            if candidate is not None:
                await self.ice.addRemoteCandidate(candidate)

    async def run(self) -> CloseReason:
        """Watches the connection until it is over, frees everything, and returns the reason.

        Call it after `answer` or `accept`. Cancelling it closes the peer. Raises the exception that
        a callback raised.
        """
        try:
            async with self._path.running():
                await self._connect()
                await self._watch()
        finally:
            await self.close()
        if self._failure is not None:
            raise self._failure
        assert self._reason is not None
        return self._reason

    def send(self, text: str) -> None:
        """Sends a text over the event channel, in order. Never blocks or raises: see CloseReason.

        Audio that is about to be sent goes first. Texts wait for it, at most
        `data_channel.MAX_HOLD_S`.
        """
        if not self._ended.is_set() and self._track.awaits_sound:
            self._channel.hold()
        self._channel.send(text)

    def stop(self, reason: CloseReason = CloseReason.CLOSED) -> None:
        """Asks `run` to end. The first reason is kept. May be called in callbacks."""
        if self._reason is None:
            self._reason = reason
        self._decided.set()
        self._ended.set()

    async def close(self) -> None:
        """Ends the call now and frees everything. Idempotent, and bounded by CLOSE_TIMEOUT_S."""
        self.stop()
        if self._is_closing:
            await self._closed.wait()
            return
        self._is_closing = True
        self._channel.release()
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await self._pc.close()
        except TimeoutError:
            logger.warning("! peer did not close within %d s", CLOSE_TIMEOUT_S)
        finally:
            self._closed.set()
            assert self._reason is not None
            self._callbacks.on_closed(self._reason)

    async def _play(self, send: RtpPacketSender) -> None:
        with self._guard:
            await self._track.run(send)

    async def _set_remote(self, sdp: str, kind: str) -> None:
        try:
            checked = checked_sdp(sdp)
            await self._pc.setRemoteDescription(RTCSessionDescription(checked, kind))
            for candidate in candidates_in(sdp):
                await self.ice.addRemoteCandidate(candidate)
        except InvalidStateError as exc:
            raise Conflict(f"this call does not accept {kind} now", code="call_not_open") from exc
        except (InternalError, OperationError, *SDP_ERRORS) as exc:
            await self.close()
            raise RequestError(f"this SDP cannot be used: {exc}", code="invalid_sdp") from exc
        except BaseException:
            await self.close()
            raise

    async def _set_local(self) -> str:
        try:
            await self._pc.setLocalDescription()
            return self._path.described(self._pc.localDescription.sdp)
        except BaseException:
            await self.close()
            raise

    async def _connect(self) -> None:
        try:
            async with asyncio.timeout(self.settings.connect_timeout_s):
                await self._decided.wait()
        except TimeoutError:
            self.stop(CloseReason.CONNECT_TIMEOUT)

    async def _watch(self) -> None:
        """Waits until the call is over. A peer from which no packets arrive counts as lost."""
        step_s = self.settings.vanished_timeout_s / 5
        packets, quiet_s = 0, 0.0
        while not self._ended.is_set():
            try:
                async with asyncio.timeout(step_s):
                    await self._ended.wait()
            except TimeoutError:
                seen = await self._packets_received()
                quiet_s = quiet_s + step_s if seen == packets else 0
                packets = seen
            if quiet_s >= self.settings.vanished_timeout_s:
                self.stop(CloseReason.CONNECTION_LOST)

    async def _packets_received(self) -> int:
        report = await self._pc.getStats()
        return sum(stats.packetsReceived for stats in report.values() if stats.type == "transport")

    def _on_connection_state(self) -> None:
        match self._pc.connectionState:
            case "connected":
                self._decided.set()
                self._guarded(self._callbacks.on_connected)()
            case "failed":
                was_up = self._decided.is_set()
                if not was_up and self._audio.receiver.transport.state == "failed":
                    logger.warning("! %s", describe_failure(self._path.peer_curve()))
                self.stop(CloseReason.CONNECTION_LOST if was_up else CloseReason.CONNECT_FAILED)
            case "closed":
                self._on_remote_closed()

    def _on_remote_closed(self) -> None:
        """Ends the call after the other side closed it, or ICE gave it up."""
        is_lost = self._path.is_ice_over()
        self.stop(CloseReason.CONNECTION_LOST if is_lost else CloseReason.REMOTE_CLOSED)

    def _on_packet(self, sequence_number: int, timestamp: int, payload: bytes) -> None:
        with self._guard:
            self._track.note_arrival()
            for frame in self.source.push(sequence_number, timestamp, payload):
                if not self._ended.is_set():
                    self._callbacks.on_frame(frame)

    def _on_frames(self, frames: list[AudioFrame]) -> None:
        with self._guard:
            for frame in frames:
                if not self._ended.is_set():
                    self._callbacks.on_frame(frame)

    def _on_message(self, message: str | bytes) -> None:
        with self._guard:
            if not self._ended.is_set():
                self._callbacks.on_message(message)

    def _pull(self) -> AudioFrame | None:
        """Returns the next frame to play; None for silence. An exception ends `_play`."""
        if self._channel.is_holding:  # release the texts once this packet has been sent
            asyncio.get_running_loop().call_soon(self._channel.release)
        return None if self._ended.is_set() else self._callbacks.pull()

    def _next_sound_event(self) -> asyncio.Event | None:
        with self._guard:
            return None if self._ended.is_set() else self._callbacks.next_sound_event()
        return None

    def _guarded(self, callback: Callable[[], None]) -> Callable[[], None]:
        def call() -> None:
            with self._guard:
                callback()

        return call

    def _fail(self, failure: Exception) -> None:
        self._failure = self._failure or failure
        self.stop()
