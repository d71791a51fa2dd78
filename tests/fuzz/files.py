"""Bytes from outside: worker frames, descriptions, sound files, packets, settings."""

import asyncio
import json
import random
import tempfile
import wave
from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from io import BytesIO
from pathlib import Path

import av
import numpy as np

from core.errors import ConfigError, RemoteProtocolError, RequestError
from engines.base import AsrInfo, AsrOptions, AsrResult
from engines.wire import (
    Decode,
    Decoded,
    Failed,
    Forget,
    Load,
    Ping,
    Pong,
    Ready,
    Reply,
    Request,
    WireItem,
    frame,
    reply_reader,
    request_reader,
)
from media.files import decode_file
from media.opus import BadAudioPacket, OpusDecoder, OpusEncoder
from media.peer import Peer, PeerCallbacks
from media.sdp import checked_sdp
from server.config import Config
from server.config_load import load, setting_paths
from tests.fuzz.mutate import (
    ODD_TEXTS,
    ODD_VALUES,
    mutated_bytes,
    mutated_json,
    mutated_lines,
    mutated_text,
)
from tests.media.signals import tone
from tests.media.test_sdp import OFFER

REQUESTS: tuple[Request, ...] = (
    Load("asr", "whisper", {"model": "x", "threads": 2}),
    Decode(7, [WireItem("u1", bytes(range(100)), True, AsrOptions("en", prompt="hello"))]),
    Forget("u1"),
    Ping(3),
)
REPLIES: tuple[Reply, ...] = (
    Ready(AsrInfo("whisper", "nano", ("en", "de"), 4, False)),
    Decoded(7, [AsrResult("turn on", 0.5, "en")]),
    Failed("engine_failed", "no", 7),
    Pong(3),
)
SAMPLES = 1920
MAX_PACKET_SAMPLES = 5760
"120 ms at 48 kHz."


def framing(lottery: random.Random) -> None:
    """Good frames come out whole in any split; a damaged stream is refused or waited on."""
    is_request = lottery.random() < 0.5
    messages = lottery.choices(REQUESTS, k=3) if is_request else lottery.choices(REPLIES, k=3)
    good = b"".join(frame(message) for message in messages)
    is_damaged = lottery.random() < 0.8
    data = mutated_bytes(lottery, good) if is_damaged else good
    reader = request_reader() if is_request else reply_reader()
    out: list[Request | Reply] = []
    try:
        for part in _split(lottery, data):
            for message in reader.receive_data(part):
                out.append(message)
                for item in message.items if isinstance(message, Decode) else ():
                    item.to_item()
    except RemoteProtocolError:
        assert is_damaged
    else:
        assert is_damaged or out == messages


def _split(lottery: random.Random, data: bytes) -> Sequence[bytes]:
    cuts = sorted(lottery.randrange(len(data) + 1) for _ in range(lottery.randrange(6)))
    ends = [*cuts, len(data)]
    return [data[begin:end] for begin, end in zip([0, *cuts], ends, strict=True)]


def describing(lottery: random.Random) -> None:
    """A description we can use, or an error that names what is wrong."""
    try:
        checked = checked_sdp(mutated_lines(lottery, OFFER))
    except RequestError as error:
        assert error.code in {
            "invalid_sdp",
            "sdp_without_audio",
            "sdp_without_opus",
            "sdp_too_large",
        }
    else:
        assert checked.startswith("v=0")


def answering(lottery: random.Random) -> None:
    """A whole peer takes the description and answers it, or refuses it and is closed."""
    offer = mutated_lines(lottery, OFFER.replace("AA:BB", ":".join(["AB"] * 32)))

    async def main() -> None:
        peer = Peer(PeerCallbacks(lambda: None, lambda _: None, lambda _: None))
        try:
            answer = await peer.answer(offer)
            assert answer.startswith("v=0")
        except RequestError as error:
            assert error.code
        finally:
            await peer.close()

    asyncio.run(main())


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


def sound_files(lottery: random.Random) -> None:
    """Damaged sound files give what is there or a refusal. The first bytes are hit most."""
    kinds = (_wav, lambda: _coded("ogg", "libopus"), lambda: _coded("flac", "flac"))
    data = lottery.choice(kinds)()
    head = min(len(data), lottery.choice((44, 64, 200, len(data))))
    try:
        pcm = decode_file(mutated_bytes(lottery, data[:head]) + data[head:])
    except RequestError as error:
        assert error.code in {"unsupported_audio", "audio_too_long"}
    else:
        assert pcm.dtype == np.int16
        assert pcm.ndim == 1
        assert len(pcm) > 0


@cache
def _packets() -> tuple[bytes, ...]:
    encoder = OpusEncoder(48_000)
    sound = tone(300, 48_000, 48_000)
    size = encoder.frame_samples
    return tuple(encoder.encode(sound[at : at + size]) for at in range(0, len(sound), size))


def packets(lottery: random.Random) -> None:
    """Noise in, noise or a refusal out; the next good packet is heard all the same."""
    decoder = OpusDecoder()
    for _ in range(lottery.randint(1, 8)):
        good = lottery.choice(_packets())
        noise = lottery.randbytes(lottery.choice((0, 1, 2, 3, 20, 200, 1275, 8000)))
        data = noise if lottery.random() < 0.5 else mutated_bytes(lottery, good)
        try:
            assert len(decoder.decode(data)) <= MAX_PACKET_SAMPLES
        except BadAudioPacket:
            assert len(decoder.conceal()) <= MAX_PACKET_SAMPLES
    assert len(decoder.decode(_packets()[0])) == 960


def settings(lottery: random.Random) -> None:
    """A configuration in force, or one line for each thing that is wrong with it."""
    text = "\n".join(_setting(lottery) for _ in range(lottery.randint(1, 6)))
    if lottery.random() < 0.3:
        text = mutated_text(lottery, text)
    environ = {_variable(lottery): lottery.choice(ODD_TEXTS) for _ in range(lottery.randrange(3))}
    with tempfile.NamedTemporaryFile(suffix=".toml") as file:
        file.write(text.encode(errors="surrogatepass"))
        file.flush()
        try:
            assert isinstance(load(environ, file=Path(file.name)).config, Config)
        except ConfigError as error:
            assert str(error).strip()


@cache
def _paths() -> tuple[tuple[str, ...], ...]:
    return tuple(setting_paths())


def _setting(lottery: random.Random) -> str:
    path = lottery.choice(_paths())
    value = lottery.choice((1, 0.5, "auto", "x", True, ["en"], {"a": 1}, *ODD_VALUES))
    if lottery.random() < 0.3:
        value = mutated_json(lottery, {"a": [value]})
    written = lottery.choice((json.dumps(value), _inline(value)))
    name = ".".join(path)
    return f"{mutated_text(lottery, name) if lottery.random() < 0.1 else name} = {written}"


def _inline(value: object) -> str:
    """As TOML writes it."""
    match value:
        case dict():
            inner = ", ".join(f"{json.dumps(k)} = {_inline(v)}" for k, v in value.items())
            return "{ " + inner + " }"
        case list():
            return f"[{', '.join(map(_inline, value))}]"
        case None:
            return "''"
        case float():
            return str(value)
        case _:
            return json.dumps(value)


def _variable(lottery: random.Random) -> str:
    name = "EARSHOT_" + "__".join(lottery.choice(_paths())).upper()
    return mutated_text(lottery, name) if lottery.random() < 0.1 else name
