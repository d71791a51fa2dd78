"""Bytes from outside: worker frames, sound as files, streams and packets, settings."""

import random
import wave
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import cast

import av
import numpy as np
from msgspec import Struct

from core.audio import Pcm
from core.errors import ConfigError, RemoteProtocolError, RequestError
from engines.base import AsrInfo, AsrOptions, AsrResult, WordMark
from engines.runtime.worker.payloads import AsrBatch, AsrItemMessage, SpeechMessage
from engines.runtime.worker.protocol import (
    CallRequest,
    ChunkReply,
    DoneReply,
    FailureReply,
    LoadRequest,
    PingRequest,
    PongReply,
    ReadyReply,
    decode_payload,
    frame,
    reply_reader,
    request_reader,
)
from media.codecs.amr import AmrDecoder
from media.codecs.opus import InvalidOpusPacket, OpusDecoder, OpusEncoder
from media.files.decode import FileLimits, decode_file
from media.files.raw import AudioByteDecoder, RawDecoder, UnsupportedWavError, WavDecoder
from server.config import Config
from server.config.load import load, setting_paths
from tests.fuzz.choices import drawn, scripts
from tests.fuzz.target import Target
from tests.media.signals import tone

REQUESTS: tuple[Struct, ...] = (
    LoadRequest("asr", "whisper", {"model": "x", "threads": 2}),
    CallRequest(
        7,
        "decode",
        AsrBatch([AsrItemMessage("u1", bytes(range(100)), True, AsrOptions("en", prompt="hello"))]),
    ),
    PingRequest(3),
)
REPLIES: tuple[Struct, ...] = (
    ReadyReply(AsrInfo("whisper", "nano", ("en", "de"), 4, False)),
    DoneReply(7, [AsrResult("turn on", 0.5, "en")]),
    ChunkReply(8, SpeechMessage(bytes(range(100)), [WordMark(0, 2, 0.0, 12.5)])),
    FailureReply("engine_failed", "no", 7),
    PongReply(3),
)
SAMPLES = 1920
MAX_PACKET_SAMPLES = 5760
"120 ms at 48 kHz."
MAX_FILE_S = 60.0
"The limit of a file's duration; a header may promise days."


def framing(data: bytes) -> None:
    """Checks that a cut stream of frames gives the same as the whole: messages, a refusal or a
    wait. The first bytes select the reader and the place of the cut."""
    stream, is_request = data[2:], bool(data[:1] and data[0] % 2)
    cut = data[1] * len(stream) // 256 if len(data) > 1 else 0
    whole = _frames(is_request, stream)
    assert whole == _frames(is_request, stream[:cut], stream[cut:])


def _frames(is_request: bool, *pieces: bytes) -> str:
    """Returns the result as text, because damaged numbers may be NaN, which equals nothing."""
    reader = request_reader() if is_request else reply_reader()
    out: list[object] = []
    try:
        for piece in pieces:
            for message in reader.receive_data(piece):
                match message:
                    case CallRequest(payload=payload):
                        batch = decode_payload(payload, AsrBatch)
                        out.append([item.to_item() for item in batch.items])
                    case ReadyReply(info=payload):
                        out.append(decode_payload(payload, AsrInfo))
                    case DoneReply(payload=payload):
                        out.append(decode_payload(payload, list[AsrResult]))
                    case ChunkReply(payload=payload):
                        out.append(decode_payload(payload, SpeechMessage))
                    case _:
                        out.append(message)
    except RemoteProtocolError:
        return "refused"
    return repr(out)


@cache
def _wav() -> bytes:
    out = BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16_000)
        file.writeframes(tone(440, SAMPLES, 16_000).tobytes())
    return out.getvalue()


@cache
def _coded(container: str, codec: str) -> bytes:
    out = BytesIO()
    with av.open(out, "w", format=container) as file:
        stream = file.add_stream(codec, rate=48_000)
        assert isinstance(stream, av.AudioStream)
        stream.layout = "mono"
        form = stream.codec_context.format.name
        part = av.AudioFrame.from_ndarray(tone(440, 9600, 48_000)[None], "s16", "mono")
        part.sample_rate, part.pts, part.time_base = 48_000, 0, Fraction(1, 48_000)
        for resampled in av.AudioResampler(form, "mono", 48_000, 960).resample(part):
            file.mux(stream.encode(resampled))
        file.mux(stream.encode(None))
    return out.getvalue()


def sound_files(data: bytes) -> None:
    """Checks that damaged sound files give the intact part or a refusal."""
    try:
        pcm = decode_file(data, limits=FileLimits(max_duration_s=MAX_FILE_S))
    except RequestError as error:
        assert error.code in {"unsupported_audio", "audio_too_long"}
    else:
        assert pcm.dtype == np.int16
        assert pcm.ndim == 1
        assert len(pcm) > 0


def sound_streams(data: bytes) -> None:
    """Checks that WAV, AMR and raw samples give the same sound in pieces as whole, or are refused.
    The first byte says where the stream is cut."""
    stream = data[1:]
    cut = data[0] * len(stream) // 256 if data else 0
    decoders: tuple[Callable[[], AudioByteDecoder], ...] = (
        WavDecoder,
        AmrDecoder,
        lambda: RawDecoder(16_000, 24, 2),
    )
    for decoder in decoders:
        whole = _heard(decoder(), stream)
        in_pieces = _heard(decoder(), stream[:cut], stream[cut:])
        assert (whole is None) == (in_pieces is None)
        assert whole is None or in_pieces is None or len(whole) == len(in_pieces)


def _heard(decoder: AudioByteDecoder, *pieces: bytes) -> Pcm | None:
    try:
        return np.concatenate([*(decoder.push(piece) for piece in pieces), decoder.flush()])
    except (RequestError, UnsupportedWavError):
        return None


@cache
def _packets() -> tuple[bytes, ...]:
    encoder = OpusEncoder(48_000)
    sound = tone(300, 48_000, 48_000)
    size = encoder.frame_samples
    return tuple(encoder.encode(sound[at : at + size]) for at in range(0, len(sound), size))


def packets(lottery: random.Random) -> None:
    """Checks that damaged packets give sound or a refusal, and that the next good packet is
    decoded."""
    decoder = OpusDecoder()
    for _ in range(lottery.randint(1, 8)):
        good = lottery.choice(_packets())
        data = bytearray(good)
        for _ in range(lottery.randrange(4)):
            data[lottery.randrange(len(data))] = lottery.randrange(256)
        if lottery.random() < 0.5:
            data = bytearray(lottery.randbytes(lottery.choice((0, 1, 2, 3, 20, 200, 1275, 8000))))
        try:
            assert len(decoder.decode(bytes(data))) <= MAX_PACKET_SAMPLES
        except InvalidOpusPacket:
            assert len(decoder.conceal()) <= MAX_PACKET_SAMPLES
    assert len(decoder.decode(_packets()[0])) == 960


def settings(data: bytes) -> None:
    """Checks that settings give a configuration, or one line for each error. The input is a file
    and, after its first zero byte, lines of the environment."""
    toml, _, lines = data.partition(b"\0")
    pairs = (line.partition("=") for line in lines.decode(errors="replace").split("\n"))
    environ = {f"EARSHOT_{name}": value for name, _, value in pairs if name != "CONFIG"}
    try:
        assert isinstance(load(environ, file=cast(Path, _File(toml))).config, Config)
    except ConfigError as error:
        assert str(error).strip()


@dataclass
class _File:
    """The methods of a file that are used; a real file for each input would take most of the time.
    No catalogue lies beside it."""

    data: bytes

    def read_text(self, *, encoding: str) -> str:
        return self.data.decode(encoding)

    def with_name(self, name: str) -> Path:
        return Path("/nowhere", name)


VALUES = ("1", "0.5", '"auto"', "true", '["en"]', "{ a = 1 }", "nan", "1979-05-27", "9" * 40)


def _written() -> tuple[bytes, ...]:
    """Returns every setting, in a file and in the environment."""
    paths = list(setting_paths())
    toml = [f"{'.'.join(path)} = {VALUES[i % len(VALUES)]}" for i, path in enumerate(paths)]
    names = ["__".join(path).upper() for path in paths]
    both = (f"{line}\n\0{name}=1" for line, name in zip(toml, names, strict=True))
    return tuple(one.encode() for one in both)


TARGETS = (
    Target(
        name="worker_frames",
        one_input=framing,
        seeds=tuple(
            bytes([kind, 100]) + b"".join(map(frame, messages))
            for kind, messages in ((1, REQUESTS), (0, REPLIES))
        ),
    ),
    Target(
        name="sound_files",
        one_input=sound_files,
        seeds=(_wav(), _coded("ogg", "libopus"), _coded("flac", "flac")),
        few=1000,
        many=100_000,
    ),
    Target(
        name="sound_streams",
        one_input=sound_streams,
        seeds=(
            b"\x10" + _wav()[:600],
            b"\x10#!AMR\n" + b"\x7c" * 4,
            b"\x03#!AMR-WB\n" + b"\x7c" * 4,
        ),
        words=("RIFF", "WAVE", "fmt ", "data", "LIST", "#!AMR\n", "#!AMR-WB\n"),
    ),
    # Each has some five packets, so a million in all.
    Target(name="opus_packets", one_input=drawn(packets), seeds=scripts(), few=2000, many=200_000),
    Target(
        name="settings",
        one_input=settings,
        seeds=_written(),
        words=VALUES,
        few=3000,
    ),
)
