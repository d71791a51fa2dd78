"""Transcribes a recording as each door for live speech would, in virtual time.

The audio takes the same way as in the door: resampling, codec, packets, framing. Only the network
and the messages of the protocol are left out.
"""

import asyncio
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from bench.measurements.material.remembered_results import RememberingRecogniser
from bench.server.stub_engines import llm, tts
from bench.server.stub_engines.scheduled_asr import NullMetrics, RunningLoopClock
from bench.tools.virtual_time import run_virtual
from core.audio import ASR_RATE_HZ, PTIME_MS, AudioFrame, Pcm, ms_to_samples, silence
from core.conversation.events import TranscriptionCompleted
from core.conversation.items import MessageItem
from devices.xiaozhi.audio import BITRATE_BPS, PACKET_MS, DeviceAudioInput
from engines.base import AsrItem, AsrOptions, VadEngine
from media.codecs.opus import OPUS_RATE_HZ, OpusEncoder, OpusSettings
from media.files.raw import RawDecoder
from media.resample import Resampler
from media.webrtc.rtp.tracks import TrackSource
from pipeline.conversation.conversation import Conversations
from pipeline.services import EngineSet, SessionServices
from pipeline.session.session import Session
from pipeline.session.sessions import Sessions
from pipeline.shared.settings import DEFAULT, PlayoutPacing, SessionSettings, TurnDetection
from pipeline.tools.toolbox import Toolbox
from pipeline.transcription.no_speech import NoSpeechMode
from pipeline.transcription.recording import Transcriber
from pipeline.transcription.stitching import join_texts
from serving.asr.scheduling import DecodePriority
from signaling.realtime.protocol.audio_format import WIRE_RATE_HZ
from signaling.realtime.protocol.audio_input import InputAudioDecoder

TAIL_MS = 2500
"Silence after the recording: long enough that every turn ends in it."
LLM_MS, TTS_MS = 100, 100
"Fixed delays of the stub engines."

Detection = Literal["server_vad", "semantic_vad"]
"Kind of turn detection."

Carrier = Literal["realtime", "transcription", "webrtc", "xiaozhi"]
"""Way in which a session gets its audio. realtime: PCM of 24 kHz in events over a WebSocket.
transcription: the same, in a session that does not answer. webrtc: packets of 20 ms. xiaozhi:
packets of 60 ms."""

DOORS = (
    "upload",
    "wyoming",
    "willow",
    *(f"{carrier}/{kind}" for carrier in get_args(Carrier) for kind in get_args(Detection)),
)
"""Names of the doors. upload: a whole file. wyoming, willow: samples as they are spoken; the client
reports the end of the utterance. CARRIER/DETECTION: a session."""

AudioPacket = list[AudioFrame]
"Frames that arrive at the same time."


@dataclass(frozen=True, slots=True)
class RecognisedSpeech:
    """The transcript of one recording."""

    text: str
    empty_utterances: int = 0
    "Number of utterances without words."
    rejected_words: int = 0
    "Number of decoded words that were rejected as noise."


def transcribe_at_door(
    recogniser: RememberingRecogniser,
    vad: VadEngine,
    door: str,
    pcm: Pcm,
    no_speech: NoSpeechMode = "off",
) -> RecognisedSpeech:
    """Returns the transcript of a recording that arrives at a door.

    door: one of DOORS. pcm: samples at 16 kHz. no_speech: as the setting `asr.no_speech`.
    """
    engines = EngineSet(
        vad,
        {DEFAULT: recogniser},
        {DEFAULT: llm.create(llm.Settings(delay_ms=LLM_MS))},
        {DEFAULT: tts.create(tts.Settings(delay_ms=TTS_MS))},
        no_speech=no_speech,
    )
    if door in CHUNK_BYTES:
        return _transcribe_utterance(engines, pcm, CHUNK_BYTES[door])
    if door == "upload":
        return _transcribe_utterance(engines, pcm, None)
    carrier, _, kind = door.partition("/")
    detection = TurnDetection(
        kind="server_vad" if kind == "server_vad" else "semantic_vad",
        create_response=carrier != "transcription",
    )
    settings = SessionSettings(answers=True, turn_detection=detection)
    packets, paced_by = CARRIERS[carrier]
    return _transcribe_in_session(
        engines, packets(np.append(pcm, silence(TAIL_MS, ASR_RATE_HZ))), settings, paced_by
    )


def transcribe_without_door(recogniser: RememberingRecogniser, pcm: Pcm) -> str:
    """Returns the recogniser's own text of a recording, with nothing rejected as noise.

    Audio that is too long for the recogniser is decoded window by window. pcm: samples at 16 kHz.
    """
    window_ms = recogniser.info.window_ms
    size = ms_to_samples(window_ms, ASR_RATE_HZ) if window_ms else max(1, len(pcm))
    options = AsrOptions(no_speech_threshold=1.0)
    items = [
        AsrItem("whole", pcm[at : at + size], True, options) for at in range(0, len(pcm), size)
    ]
    return join_texts(recogniser.result(item).text for item in items)


def realtime_packets(pcm: Pcm) -> Iterator[AudioPacket]:
    """Yields the frames of a client that sends events of 20 ms at 24 kHz."""
    upsampler = Resampler(ASR_RATE_HZ, WIRE_RATE_HZ)
    sent = np.concatenate([upsampler.push(pcm), upsampler.flush()])
    decoder, size = InputAudioDecoder(), ms_to_samples(PTIME_MS, WIRE_RATE_HZ)
    for at in range(0, len(sent), size):
        decoder.push(b64encode(sent[at : at + size].tobytes()).decode())
        yield list(decoder.take())


def webrtc_packets(pcm: Pcm) -> Iterator[AudioPacket]:
    """Yields the frames of a call: Opus as a browser sends it, without losses."""
    encoder, source = OpusEncoder(ASR_RATE_HZ), TrackSource()
    ticks = ms_to_samples(PTIME_MS, OPUS_RATE_HZ)
    for number, payload in enumerate(_encoded(encoder, pcm)):
        yield source.push(number, number * ticks, payload)


def xiaozhi_packets(pcm: Pcm) -> Iterator[AudioPacket]:
    """Yields the frames of a board with stock firmware: 60 ms at once."""
    settings = OpusSettings(BITRATE_BPS, "voip", PACKET_MS, complexity=0)
    decoder = DeviceAudioInput()
    for payload in _encoded(OpusEncoder(ASR_RATE_HZ, settings), pcm):
        yield decoder.decode(payload, PACKET_MS)


def _encoded(encoder: OpusEncoder, pcm: Pcm) -> Iterator[bytes]:
    size = encoder.frame_samples
    padded = np.pad(pcm, (0, -len(pcm) % size))
    for at in range(0, len(padded), size):
        yield encoder.encode(padded[at : at + size])


CARRIERS: Mapping[str, tuple[Callable[[Pcm], Iterator[AudioPacket]], PlayoutPacing]] = {
    "realtime": (realtime_packets, "client"),
    "transcription": (realtime_packets, "client"),
    "webrtc": (webrtc_packets, "server"),
    "xiaozhi": (xiaozhi_packets, "server"),
}
"Carrier -> (function that makes its packets, side that paces playout)."

CHUNK_BYTES: Mapping[str, int] = {"wyoming": 2048, "willow": 4096}
"Bytes per message of Home Assistant's satellites, and of a Willow board."


def _transcribe_utterance(
    engines: EngineSet, pcm: Pcm, chunk_bytes: int | None
) -> RecognisedSpeech:
    """Transcribes an utterance whose end the client reports.

    chunk_bytes: bytes of PCM per message, sent in real time; None: an upload, sent at once.
    """
    results: list[RecognisedSpeech] = []

    async def main() -> None:
        is_live = chunk_bytes is not None
        decoder = RawDecoder(ASR_RATE_HZ, bits=16, channels=1)
        priority = DecodePriority.FINAL if is_live else DecodePriority.BATCH
        opened = Transcriber(engines).open(DEFAULT, AsrOptions(), priority=priority, eager=is_live)
        data, size = pcm.tobytes(), chunk_bytes or ASR_RATE_HZ
        async with opened as recording:
            for at in range(0, len(data), size):
                chunk = decoder.push(data[at : at + size])
                await recording.push(chunk)
                await asyncio.sleep(len(chunk) / ASR_RATE_HZ if is_live else 0)
            recording.end()
            segments = [result async for result in recording.segment_results()]
        results.append(
            RecognisedSpeech(
                join_texts(segment.text for segment in segments),
                sum(not segment.text for segment in segments),
                sum(segment.rejected_words for segment in segments),
            )
        )

    run_virtual(main())
    return results[0]


def _transcribe_in_session(
    engines: EngineSet,
    packets: Iterator[AudioPacket],
    settings: SessionSettings,
    paced_by: PlayoutPacing,
) -> RecognisedSpeech:
    conversations = Conversations()
    results: list[RecognisedSpeech] = []

    async def main() -> None:
        services = SessionServices(
            engines, Toolbox([], NullMetrics()), RunningLoopClock(), NullMetrics()
        )
        rejected: dict[str, int] = {}
        async with (
            Sessions(services, conversations, 1).open(settings, paced_by=paced_by) as session,
            asyncio.TaskGroup() as tasks,
        ):
            reader = tasks.create_task(_read_events(session, rejected), name="events")
            for frames in packets:
                await asyncio.sleep(sum(len(frame.pcm) for frame in frames) / ASR_RATE_HZ)
                for frame in frames:
                    session.feed(frame)
                    session.pull()
            await session.settled()
            reader.cancel()
            items = conversations.get(session.conversation_id).history.items
        utterances = [
            item for item in items if isinstance(item, MessageItem) and item.role == "user"
        ]
        # An utterance that was joined with the next one has no item of its own any more.
        results.append(
            RecognisedSpeech(
                " ".join(item.text for item in utterances),
                sum(not item.text for item in utterances),
                sum(rejected.get(item.id, 0) for item in utterances),
            )
        )

    run_virtual(main())
    return results[0]


async def _read_events(session: Session, rejected: dict[str, int]) -> None:
    """Reads all events: unread events would end the session."""
    async for event in session.events:
        if isinstance(event, TranscriptionCompleted):
            rejected[event.item_id] = event.rejected_words
