import wave
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest

from core.audio import AudioFrame, Pcm
from core.errors import RequestError, TooLarge
from media.files import FileLimits, decode_file, write_wav
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
