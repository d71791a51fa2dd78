import tracemalloc
import wave
from fractions import Fraction
from io import BytesIO
from pathlib import Path

import av
import numpy as np
import pytest

from core.audio import AudioFrame, Pcm
from core.errors import PayloadTooLarge, RequestError
from media.files import decode as files
from media.files.decode import (
    BLOCK_S,
    CODECS,
    FileLimits,
    decode,
    decode_file,
    load_codecs,
    write_wav,
)
from tests.media.files.hostile_files import caf_chunk, m4a_of_repeats
from tests.media.signals import peak_hz, tone
from tests.shared import shared_data

pytestmark = pytest.mark.many


def wav(pcm: bytes, rate_hz: int, width_bytes: int, channels: int) -> bytes:
    out = BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(width_bytes)
        file.setframerate(rate_hz)
        file.writeframes(pcm)
    return out.getvalue()


def as_width(pcm: Pcm, width_bytes: int) -> bytes:
    """Converts the sound to 8-bit (unsigned), 16, 24 or 32-bit samples."""
    if width_bytes == 1:
        return ((pcm >> 8) + 128).astype(np.uint8).tobytes()
    wide = pcm.astype("<i4") << 16
    return b"".join(sample.tobytes()[4 - width_bytes :] for sample in wide)


@pytest.mark.parametrize("rate_hz", [8000, 16000, 44100])
@pytest.mark.parametrize("width_bytes", [1, 2, 3, 4])
def test_wav_files_of_any_width_are_decoded(rate_hz: int, width_bytes: int) -> None:
    data = wav(as_width(tone(700, rate_hz, rate_hz), width_bytes), rate_hz, width_bytes, 1)
    heard = decode_file(data, 16000)
    assert len(heard) == pytest.approx(16000, abs=1)
    assert peak_hz(heard, 16000) == pytest.approx(700, abs=2)
    assert np.abs(heard).max() == pytest.approx(8000, rel=0.05)


def test_stereo_is_mixed_to_mono() -> None:
    left, right = tone(500, 16000, 16000), np.zeros(16000, np.int16)
    stereo = np.stack([left, right], axis=1)
    heard = decode_file(wav(stereo.astype("<i2").tobytes(), 16000, 2, 2))
    assert np.abs(heard).max() == pytest.approx(4000, rel=0.02)


def test_a_written_wav_is_read_back_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "a.wav"
    pcm = tone(300, 4800, 24000)
    write_wav(path, [AudioFrame(pcm[:2400], 24000, 0), AudioFrame(pcm[2400:], 24000, 2400)])
    assert np.array_equal(decode_file(path, 24000), pcm)


def test_frames_of_two_rates_in_one_wav_are_refused(tmp_path: Path) -> None:
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
def test_a_file_without_audio_is_refused(junk: bytes) -> None:
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
def test_size_and_duration_limits_are_named(
    limits: FileLimits, code: str, message: str, tmp_path: Path
) -> None:
    data = wav(bytes(32000), 16000, 2, 1)
    path = tmp_path / "a.wav"
    path.write_bytes(data)
    for source in (data, path):
        with pytest.raises(PayloadTooLarge, match=message) as error:
            decode_file(source, limits=limits)
        assert error.value.code == code


RECORDINGS = {
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


@pytest.mark.parametrize(("name", "duration_s"), RECORDINGS.items())
def test_recordings_of_every_container_are_decoded(name: str, duration_s: float) -> None:
    heard = decode_file(shared_data("codecs", name))
    assert len(heard) / 16000 == pytest.approx(duration_s, abs=0.03)
    assert np.abs(heard).max() > 5000


def encoded(container: str, codec: str) -> bytes:
    """Returns one second of a tone in this container and codec."""
    rate_hz, layout = 48_000, "mono"
    data = BytesIO()
    with av.open(data, "w", format=container) as file:
        stream = file.add_stream(codec, rate=rate_hz, layout=layout)
        assert isinstance(stream, av.AudioStream)
        one = av.AudioFrame.from_ndarray(tone(440, rate_hz, rate_hz)[None], "s16", "mono")
        one.sample_rate = rate_hz
        stream.codec_context.open()
        size = stream.codec_context.frame_size or 4096
        for part in av.AudioResampler(stream.format.name, layout, rate_hz, size).resample(one):
            file.mux(stream.encode(part))
        file.mux(stream.encode(None))
    return data.getvalue()


@pytest.mark.parametrize(
    ("container", "codec"),
    [
        ("mpeg", "mp2"),
        ("mp3", "libmp3lame"),
        ("matroska", "pcm_s16le"),
        ("webm", "libopus"),
        ("ogg", "libopus"),
        ("mov", "alac"),
        ("mp4", "aac"),
        ("adts", "aac"),
        ("caf", "pcm_s16be"),
        ("au", "pcm_mulaw"),
        ("wav", "pcm_f32le"),
        ("wav", "adpcm_ms"),
        ("wav", "adpcm_ima_wav"),
        ("w64", "pcm_s24le"),
    ],
)
def test_formats_of_phones_browsers_and_recorders_are_decoded(container: str, codec: str) -> None:
    heard = decode_file(encoded(container, codec))
    assert len(heard) / 16000 == pytest.approx(1, abs=0.15)
    assert peak_hz(heard, 16000) == pytest.approx(440, abs=2)


@pytest.mark.parametrize(
    ("container", "codec"),
    [("avi", "mp3"), ("flv", "mp3"), ("tta", "tta"), ("wv", "wavpack")],
)
def test_unlisted_containers_are_refused(container: str, codec: str) -> None:
    with pytest.raises(RequestError, match="allowed are wav, w64, aiff") as error:
        decode_file(encoded(container, codec))
    assert error.value.code == "unsupported_audio"


@pytest.mark.parametrize(
    ("container", "codec", "named"), [("mp4", "ac3", "ac3"), ("matroska", "wavpack", "wavpack")]
)
def test_unlisted_codecs_are_refused(container: str, codec: str, named: str) -> None:
    """They are not even run to find out what is in the file."""
    with pytest.raises(RequestError, match=f"codec is {named}; allowed are PCM, FLAC") as error:
        decode_file(encoded(container, codec))
    assert error.value.code == "unsupported_audio"


def test_every_listed_codec_is_available() -> None:
    load_codecs()
    assert set(CODECS) <= av.codecs_available


def test_the_sound_of_a_video_is_decoded() -> None:
    """Its pictures are not decoded, though their packets are read."""
    data = BytesIO()
    with av.open(data, "w", format="mp4") as file:
        pictures, sound = file.add_stream("mpeg4", rate=10), file.add_stream("aac", rate=16_000)
        assert isinstance(pictures, av.VideoStream)
        assert isinstance(sound, av.AudioStream)
        pictures.width = pictures.height = 64
        sound.layout = "mono"
        for _ in range(10):
            picture = av.VideoFrame.from_ndarray(np.zeros((64, 64, 3), np.uint8), "rgb24")
            file.mux(pictures.encode(picture))
        one = av.AudioFrame.from_ndarray(tone(440, 16_000, 16_000)[None], "s16", "mono")
        one.sample_rate = 16_000
        file.mux(sound.encode(one))
        file.mux([*pictures.encode(None), *sound.encode(None)])
    assert peak_hz(decode_file(data.getvalue()), 16000) == pytest.approx(440, abs=2)


def test_a_chunk_beyond_the_largest_possible_offset_is_refused(tmp_path: Path) -> None:
    """A file on a disk cannot be read at such an offset, though one in memory can."""
    path = tmp_path / "a.caf"
    path.write_bytes(caf_chunk(2**62))
    with pytest.raises(RequestError, match="cannot decode this file") as error:
        decode_file(path)
    assert error.value.code == "unsupported_audio"


def test_packets_at_one_place_are_refused() -> None:
    """The index is within its limits, but the same bytes would be read again and again."""
    with pytest.raises(RequestError, match="again and again") as error:
        decode_file(m4a_of_repeats(16_000, 5, b"sawb"))
    assert error.value.code == "unsupported_audio"


@pytest.mark.parametrize(("packets", "is_heard"), [(900, True), (1100, False)])
def test_undecodable_packets_in_a_row_are_limited(packets: int, is_heard: bool) -> None:
    data, sound = BytesIO(), tone(440, 16_000, 16_000)
    with av.open(data, "w", format="matroska") as file:
        stream = file.add_stream("aac", rate=16_000, layout="mono")
        assert isinstance(stream, av.AudioStream)
        frame = av.AudioFrame.from_ndarray(sound[None], "s16", "mono")
        frame.sample_rate = 16_000
        file.mux(stream.encode(frame))
        file.mux(stream.encode(None))
        for number in range(packets):
            broken = av.Packet(bytes(20))
            broken.stream, broken.pts = stream, 2000 + 20 * number
            broken.dts, broken.time_base = broken.pts, Fraction(1, 1000)
            file.mux(broken)
    if is_heard:
        assert len(decode_file(data.getvalue())) >= 16_000
    else:
        with pytest.raises(RequestError, match="more than 1000 packets in a row have no sound"):
            decode_file(data.getvalue())


def test_a_frame_longer_than_in_any_codec_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    data = shared_data("codecs", "1272-141231-0002.flac").read_bytes()
    monkeypatch.setattr(files, "MAX_FRAME_SAMPLES", 4095)
    with pytest.raises(RequestError, match="unsupported audio"):
        decode_file(data)


@pytest.mark.parametrize(
    ("rate_hz", "layout", "why"),
    [
        (500, "mono", "sample rate 500 Hz"),
        (400_000, "mono", "sample rate 400000 Hz"),
        (16_000, "9.1.4", "14 channels"),
    ],
)
def test_each_frame_is_checked(rate_hz: int, layout: str, why: str) -> None:
    """Not only the first frame is checked, because a stream may change midway."""
    frame = av.AudioFrame(layout=layout, samples=100)
    frame.sample_rate = rate_hz
    with pytest.raises(RequestError, match=why):
        files._check_frame(frame)


@pytest.mark.parametrize(
    ("name", "least_s"),
    [
        ("1272-141231-0002.flac", 8.0),
        ("1272-141231-0002.mp3", 8.0),
        ("command_001.awb", 1.2),
        ("silero_test.opus", 4.0),
    ],
)
def test_the_intact_part_of_a_cut_file_is_decoded(name: str, least_s: float) -> None:
    data = shared_data("codecs", name).read_bytes()
    heard = decode_file(data[: len(data) * 2 // 3])
    assert len(heard) / 16000 > least_s
    assert np.abs(heard).max() > 5000


def test_a_damaged_stretch_is_skipped() -> None:
    name = "1272-141231-0002.mp3"
    data = bytearray(shared_data("codecs", name).read_bytes())
    middle = len(data) // 2
    data[middle : middle + 200] = np.random.default_rng(1).bytes(200)
    heard = decode_file(bytes(data))
    assert len(heard) / 16000 == pytest.approx(RECORDINGS[name], abs=0.3)


def test_the_error_of_a_refused_container_lists_the_allowed_ones() -> None:
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


def test_decoded_blocks_joined_are_the_whole_sound() -> None:
    pcm = tone(300, 37 * 16000, 16000)
    data = wav(pcm.astype("<i2").tobytes(), 16000, 2, 1)
    pieces = list(decode(BytesIO(data)))
    assert np.array_equal(np.concatenate(pieces), pcm)
    assert all(abs(len(piece) - BLOCK_S * 16000) < 16000 for piece in pieces[:-1])


@pytest.mark.many  # many samples
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
