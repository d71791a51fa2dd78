import asyncio
import tracemalloc
import wave
from contextlib import aclosing
from io import BytesIO
from pathlib import Path

import av
import numpy as np
import pytest

from core.audio import AudioFrame, Pcm
from core.errors import RequestError, TooLarge
from media.files import BLOCK_S, FileLimits, blocks, decode, decode_file, write_wav
from tests.media.signals import peak_hz, tone
from tests.shared import shared_data


def wav(pcm: bytes, rate_hz: int, width_bytes: int, channels: int) -> bytes:
    out = BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(width_bytes)
        file.setframerate(rate_hz)
        file.writeframes(pcm)
    return out.getvalue()


def as_width(pcm: Pcm, width_bytes: int) -> bytes:
    """The same sound in 8-bit (unsigned), 16, 24 or 32-bit samples."""
    if width_bytes == 1:
        return ((pcm >> 8) + 128).astype(np.uint8).tobytes()
    wide = pcm.astype("<i4") << 16
    return b"".join(sample.tobytes()[4 - width_bytes :] for sample in wide)


@pytest.mark.parametrize("rate_hz", [8000, 16000, 44100])
@pytest.mark.parametrize("width_bytes", [1, 2, 3, 4])
def test_wav_of_any_width(rate_hz: int, width_bytes: int) -> None:
    data = wav(as_width(tone(700, rate_hz, rate_hz), width_bytes), rate_hz, width_bytes, 1)
    heard = decode_file(data, 16000)
    assert len(heard) == pytest.approx(16000, abs=1)
    assert peak_hz(heard, 16000) == pytest.approx(700, abs=2)
    assert np.abs(heard).max() == pytest.approx(8000, rel=0.05)


def test_stereo_is_mixed() -> None:
    left, right = tone(500, 16000, 16000), np.zeros(16000, np.int16)
    stereo = np.stack([left, right], axis=1)
    heard = decode_file(wav(stereo.astype("<i2").tobytes(), 16000, 2, 2))
    assert np.abs(heard).max() == pytest.approx(4000, rel=0.02)


def test_written_wav_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "a.wav"
    pcm = tone(300, 4800, 24000)
    write_wav(path, [AudioFrame(pcm[:2400], 24000, 0), AudioFrame(pcm[2400:], 24000, 2400)])
    assert np.array_equal(decode_file(path, 24000), pcm)


def test_one_wav_has_one_rate(tmp_path: Path) -> None:
    frames = [AudioFrame(np.zeros(10, np.int16), rate_hz, 0) for rate_hz in (8000, 16000)]
    for wrong in (frames, []):
        with pytest.raises(ValueError, match="one sample rate"):
            write_wav(tmp_path / "a.wav", wrong)


@pytest.mark.parametrize(
    "junk",
    [
        b"",
        b"hello",
        b"RIFF\x00\x00\x00\x00WAVE",
        wav(b"", 16000, 2, 1),
        b"\x00" * 10_000,
        bytes(range(256)) * 40,
        b"#EXTM3U\n#EXTINF:1,\nfile:///etc/hostname\n#EXT-X-ENDLIST\n",
        b"ffconcat version 1.0\nfile /etc/hostname\n",
        b"v=0\r\nm=audio 5000 RTP/AVP 0\r\n",
    ],
)
def test_what_is_no_audio_is_refused(junk: bytes) -> None:
    with pytest.raises(RequestError) as error:
        decode_file(junk)
    assert error.value.code == "unsupported_audio"
    assert "unsupported audio: " in str(error.value)


@pytest.mark.parametrize(
    ("limits", "code", "message"),
    [
        (FileLimits(max_bytes=1000), "audio_too_large", "limit 1000"),
        (FileLimits(max_duration_s=0.5), "audio_too_long", "more than 0.5 s"),
    ],
)
def test_limits_are_named(limits: FileLimits, code: str, message: str, tmp_path: Path) -> None:
    data = wav(bytes(32000), 16000, 2, 1)
    path = tmp_path / "a.wav"
    path.write_bytes(data)
    for source in (data, path):
        with pytest.raises(TooLarge, match=message) as error:
            decode_file(source, limits=limits)
        assert error.value.code == code


CODECS = {
    "1272-141231-0002.flac": 13.335,
    "1272-141231-0002.mp3": 13.335,
    "command_001.awb": 1.94,
    "example3.sph": 2.890,
    "french.aiff": 2.533,
    "jfk_441khz.m4a": 11.005,
    "silero_test.opus": 8.064,
    "uberi-audio-mono-16-bit-44100Hz.aiff": 2.745,
    "uberi-audio-mono-24-bit-44100Hz.wav": 2.745,
    "uberi-audio-mono-32-bit-44100Hz.wav": 2.745,
    "uberi-audio-mono-8-bit-44100Hz.wav": 2.745,
    "uberi-audio-stereo-16-bit-44100Hz.flac": 2.745,
}


@pytest.mark.parametrize(("name", "duration_s"), CODECS.items())
def test_recordings_of_every_container(name: str, duration_s: float) -> None:
    heard = decode_file(shared_data("codecs", name))
    assert len(heard) / 16000 == pytest.approx(duration_s, abs=0.03)
    assert np.abs(heard).max() > 5000


@pytest.mark.parametrize(
    ("container", "codec"),
    [("mpeg", "mp2"), ("avi", "mp3"), ("flv", "mp3"), ("tta", "tta")],
)
def test_containers_of_films_and_old_recorders(container: str, codec: str) -> None:
    rate_hz, data = 44100, BytesIO()
    with av.open(data, "w", format=container) as file:
        stream = file.add_stream(codec, rate=rate_hz, layout="mono")
        assert isinstance(stream, av.AudioStream)
        frame = av.AudioFrame.from_ndarray(tone(440, rate_hz, rate_hz)[None], "s16", "mono")
        frame.sample_rate = rate_hz
        for one in (frame, None):
            file.mux(stream.encode(one))
    heard = decode_file(data.getvalue())
    assert len(heard) / 16000 == pytest.approx(1, abs=0.15)
    assert peak_hz(heard, 16000) == pytest.approx(440, abs=2)


@pytest.mark.parametrize(
    ("name", "least_s"),
    [
        ("1272-141231-0002.flac", 8.0),
        ("1272-141231-0002.mp3", 8.0),
        ("command_001.awb", 1.2),
        ("silero_test.opus", 4.0),
    ],
)
def test_what_a_cut_file_still_holds(name: str, least_s: float) -> None:
    data = shared_data("codecs", name).read_bytes()
    heard = decode_file(data[: len(data) * 2 // 3])
    assert len(heard) / 16000 > least_s
    assert np.abs(heard).max() > 5000


def test_a_damaged_stretch_is_passed_over() -> None:
    name = "1272-141231-0002.mp3"
    data = bytearray(shared_data("codecs", name).read_bytes())
    middle = len(data) // 2
    data[middle : middle + 200] = np.random.default_rng(1).bytes(200)
    heard = decode_file(bytes(data))
    assert len(heard) / 16000 == pytest.approx(CODECS[name], abs=0.3)


def test_a_container_that_is_not_opened_says_which_are() -> None:
    with pytest.raises(RequestError, match=r"allowed are wav, .*flac, mp3, ogg") as error:
        decode_file(b"#EXTM3U\n#EXTINF:1,\nfile:///etc/hostname\n#EXT-X-ENDLIST\n")
    assert error.value.code == "unsupported_audio"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("malformed-awful.wav", "sample rate 1092676 Hz"),
        ("malformed-bad.wav", "cannot decode"),
        ("malformed-evil.wav", "cannot decode"),
        ("malformed-null.wav", "no audio samples"),
    ],
)
def test_malformed_recordings_are_refused(name: str, message: str) -> None:
    with pytest.raises(RequestError, match=message) as error:
        decode_file(shared_data("codecs", name))
    assert error.value.code == "unsupported_audio"


def test_blocks_are_the_whole_in_pieces() -> None:
    pcm = tone(300, 37 * 16000, 16000)
    data = wav(pcm.astype("<i2").tobytes(), 16000, 2, 1)
    pieces = list(decode(BytesIO(data)))
    assert np.array_equal(np.concatenate(pieces), pcm)
    assert all(abs(len(piece) - BLOCK_S * 16000) < 16000 for piece in pieces[:-1])


@pytest.mark.many  # samples
def test_a_long_file_takes_little_memory() -> None:
    """A quarter of an hour of silence as FLAC is small; decoded it would be 29 MB."""
    long = encoded_silence(900)
    assert len(long) < 500_000
    tracemalloc.start()
    total = sum(map(len, decode(long)))
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert total == 900 * 16000
    assert peak_bytes < 5_000_000


def encoded_silence(duration_s: int) -> bytes:
    out = BytesIO()
    with av.open(out, "w", format="flac") as container:
        stream = container.add_stream("flac", rate=16000, layout="mono")
        second = np.zeros((1, 16000), np.int16)
        for _ in range(duration_s):
            frame = av.AudioFrame.from_ndarray(second, format="s16", layout="mono")
            frame.sample_rate = 16000
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return out.getvalue()


def test_closing_ends_the_decoding_and_leaves_the_file_open() -> None:
    data = BytesIO(wav(bytes(2 * 16000 * 60), 16000, 2, 1))

    async def scene() -> None:
        async with aclosing(blocks(data)) as pieces:
            async for _ in pieces:
                break

    asyncio.run(scene())
    assert not data.closed
    assert 0 < data.tell() < 16000 * 60


def test_the_same_errors_in_blocks() -> None:
    async def scene() -> None:
        async for _ in blocks(b"hello"):
            pytest.fail("no audio")

    with pytest.raises(RequestError, match="unsupported audio"):
        asyncio.run(scene())
