"""Recordings at each door for live speech, in virtual time: what is understood of them.

Of a door there is the part through which the sound goes: resampling, codec, packets, framing. Only
the network and the protocol's messages are missing.
"""

import asyncio
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from bench.server.stub_engines import llm, tts
from bench.server.stub_engines.scheduled_asr import NullMetrics, RunningLoopClock
from bench.tools.remembered_results import RememberingRecogniser
from bench.tools.virtual_time import run_virtual
from core.audio import ASR_RATE_HZ, PTIME_MS, AudioFrame, Pcm, ms_to_samples, silence
from core.events import TranscriptionCompleted
from core.items import MessageItem
from devices.xiaozhi.audio import BITRATE_BPS, PACKET_MS, DeviceAudioInput
from engines.base import AsrItem, AsrOptions, VadEngine
from media.codecs.opus import OPUS_RATE_HZ, OpusEncoder, OpusSettings
from media.files.raw import RawDecoder
from media.resample import Resampler
from media.webrtc.tracks import TrackSource
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

AFTER_MS = 2500
"Silence after the recording: every turn is over then."
LLM_MS, TTS_MS = 100, 100
"Set times of the other engines."

Detection = Literal["server_vad", "semantic_vad"]
"Kind of turn detection."

Carrier = Literal["realtime", "transcription", "webrtc", "xiaozhi"]
"""realtime: PCM of 24 kHz in events over a WebSocket. transcription: the same, in a session that
does not answer. webrtc: packets of 20 ms. xiaozhi: packets of 60 ms. All but transcription
answer."""

DOORS = (
    "upload",
    "wyoming",
    "willow",
    *(f"{carrier}/{kind}" for carrier in get_args(Carrier) for kind in get_args(Detection)),
)
"""upload: a file. wyoming, willow: samples as they are spoken, until the client says that the
utterance is over. CARRIER/DETECTION: a session."""

AudioPacket = list[AudioFrame]
"Frames that come at the same time."


@dataclass(frozen=True, slots=True)
class RecognisedSpeech:
    """Words that a door understood of one recording."""

    text: str
    empty_utterances: int = 0
    "Utterances without words."
    rejected_words: int = 0
    "Decoded words that were rejected as noise."


def hear(
    recogniser: RememberingRecogniser,
    vad: VadEngine,
    door: str,
    pcm: Pcm,
    no_speech: NoSpeechMode = "off",
) -> RecognisedSpeech:
    """Returns what is understood of a recording at one of DOORS. `no_speech`: see
    `asr.no_speech`."""
    engines = EngineSet(
        vad,
        {DEFAULT: recogniser},
        {DEFAULT: llm.create(llm.Settings(delay_ms=LLM_MS))},
        {DEFAULT: tts.create(tts.Settings(delay_ms=TTS_MS))},
        no_speech=no_speech,
    )
    if door in PIECE_BYTES:
        return _recorded(engines, pcm, PIECE_BYTES[door])
    if door == "upload":
        return _recorded(engines, pcm, None)
    carrier, _, kind = door.partition("/")
    detection = TurnDetection(
        kind="server_vad" if kind == "server_vad" else "semantic_vad",
        create_response=carrier != "transcription",
    )
    settings = SessionSettings(answers=True, turn_detection=detection)
    packets, paced_by = CARRIERS[carrier]
    return _session(
        engines, packets(np.append(pcm, silence(AFTER_MS, ASR_RATE_HZ))), settings, paced_by
    )


def hear_alone(recogniser: RememberingRecogniser, pcm: Pcm) -> str:
    """Returns the text of the recogniser alone, which nothing filters; in windows if it takes no
    longer audio."""
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
"Packets of each carrier, and who paces its playout."

PIECE_BYTES: Mapping[str, int] = {"wyoming": 2048, "willow": 4096}
"Bytes that come at once from Home Assistant's satellites, and from a Willow board."


def _recorded(engines: EngineSet, pcm: Pcm, piece_bytes: int | None) -> RecognisedSpeech:
    """Hears an utterance whose end the client names. `piece_bytes`: size of what comes at once, as
    it is spoken; None: an upload, which comes at once."""
    heard: list[RecognisedSpeech] = []

    async def main() -> None:
        is_live = piece_bytes is not None
        decoder = RawDecoder(ASR_RATE_HZ, bits=16, channels=1)
        priority = DecodePriority.FINAL if is_live else DecodePriority.BATCH
        opened = Transcriber(engines).open(DEFAULT, AsrOptions(), priority=priority, eager=is_live)
        data, size = pcm.tobytes(), piece_bytes or ASR_RATE_HZ
        async with opened as recording:
            for at in range(0, len(data), size):
                piece = decoder.push(data[at : at + size])
                await recording.push(piece)
                await asyncio.sleep(len(piece) / ASR_RATE_HZ if is_live else 0)
            recording.end()
            results = [result async for result in recording.segment_results()]
        heard.append(
            RecognisedSpeech(
                join_texts(result.text for result in results),
                sum(not result.text for result in results),
                sum(result.rejected_words for result in results),
            )
        )

    run_virtual(main())
    return heard[0]


def _session(
    engines: EngineSet,
    packets: Iterator[AudioPacket],
    settings: SessionSettings,
    paced_by: PlayoutPacing,
) -> RecognisedSpeech:
    conversations = Conversations()
    heard: list[RecognisedSpeech] = []

    async def main() -> None:
        services = SessionServices(
            engines, Toolbox([], NullMetrics()), RunningLoopClock(), NullMetrics()
        )
        rejected: dict[str, int] = {}
        async with (
            Sessions(services, conversations, 1).open(settings, paced_by=paced_by) as session,
            asyncio.TaskGroup() as tasks,
        ):
            reading = tasks.create_task(_read(session, rejected), name="events")
            for frames in packets:
                await asyncio.sleep(sum(len(frame.pcm) for frame in frames) / ASR_RATE_HZ)
                for frame in frames:
                    session.feed(frame)
                    session.pull()
            await session.settled()
            reading.cancel()
            items = conversations.get(session.conversation_id).history.items
        spoken = [item for item in items if isinstance(item, MessageItem) and item.role == "user"]
        # An utterance that was joined with the next one is no item any more.
        heard.append(
            RecognisedSpeech(
                " ".join(item.text for item in spoken),
                sum(not item.text for item in spoken),
                sum(rejected.get(item.id, 0) for item in spoken),
            )
        )

    run_virtual(main())
    return heard[0]


async def _read(session: Session, rejected: dict[str, int]) -> None:
    """Reads all events: unread events would end the session."""
    async for event in session.events:
        if isinstance(event, TranscriptionCompleted):
            rejected[event.item_id] = event.rejected_words
