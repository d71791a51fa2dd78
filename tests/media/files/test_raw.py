"""Raw samples, WAV and AMR that arrive in pieces of any size, and input that cannot be read."""

import io
import struct

import av
import numpy as np
import pytest
from av.audio.stream import AudioStream

from core.audio import Pcm
from core.errors import RequestError
from media.codecs.amr import AmrDecoder
from media.files.decode import decode_file
from media.files.raw import BITS, AudioByteDecoder, RawDecoder, UnsupportedWavError, WavDecoder
from tests.media.signals import peak_hz, tone
from tests.shared import shared_data

pytestmark = pytest.mark.many

TONE = tone(440, 16_000, 16_000)


def decoded(decoder: AudioByteDecoder, data: bytes, step: int) -> Pcm:
    parts = [decoder.push(data[at : at + step]) for at in range(0, len(data), step)]
    return np.concatenate([*parts, decoder.flush()])


def as_bytes(pcm: Pcm, bits: int, channels: int) -> bytes:
    wide = np.repeat(pcm.astype(np.int32)[:, None], channels, axis=1)
    if bits == 24:
        return (wide << 8).astype("<i4").view(np.uint8).reshape(-1, 4)[:, :3].tobytes()
    return (wide << bits - 16).astype(f"<i{bits // 8}").tobytes()


def wav(
    samples: bytes, *, kind: int = 1, bits: int = 16, size: int | None = None, tags: bytes = b""
) -> bytes:
    form = struct.pack("<HHIIHH", kind, 1, 16_000, 16_000 * bits // 8, bits // 8, bits)
    if kind == 0xFFFE:
        form += struct.pack("<HHIH", 22, bits, 0, 1) + b"\0" * 14
    size = len(samples) if size is None else size
    chunks = struct.pack("<4sI", b"fmt ", len(form)) + form + tags
    return b"RIFF\0\0\0\0WAVE" + chunks + struct.pack("<4sI", b"data", size) + samples


@pytest.mark.parametrize("step", [1, 5, 2048, 10**6])
@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize("bits", BITS)
def test_samples_of_any_width_and_split_are_decoded(bits: int, channels: int, step: int) -> None:
    data = as_bytes(TONE[:2000], bits, channels) + b"\0" * (bits // 8 - 1)
    assert np.array_equal(decoded(RawDecoder(16_000, bits, channels), data, step), TONE[:2000])


def test_loud_stereo_does_not_overflow() -> None:
    loud = np.full(100, -32768, np.int16)
    assert np.array_equal(decoded(RawDecoder(16_000, 16, 2), as_bytes(loud, 16, 2), 7), loud)


@pytest.mark.parametrize("rate_hz", [8000, 11_025, 22_050, 44_100, 48_000])
def test_any_rate_is_resampled_to_16_khz(rate_hz: int) -> None:
    data = tone(440, rate_hz, rate_hz).tobytes()
    found = decoded(RawDecoder(rate_hz, 16, 1), data, 2047)
    assert abs(len(found) - 16_000) <= 1
    assert abs(peak_hz(found, 16_000) - 440) < 2


PLAIN = TONE[:1000].tobytes()


@pytest.mark.parametrize("step", [1, 13, 10**6])
@pytest.mark.parametrize(
    "data",
    [
        wav(PLAIN),
        wav(PLAIN, kind=0xFFFE),
        wav(PLAIN, size=0),
        wav(PLAIN, size=0xFFFFFFFF),
        wav(PLAIN, tags=b"LIST\5\0\0\0hello\0"),
        wav(PLAIN + b"junk after the sound" * 9, size=2000),
        wav(as_bytes(TONE[:1000], 24, 1), bits=24),
        wav(PLAIN + b"\1"),
    ],
)
def test_wav_in_any_split_is_decoded(data: bytes, step: int) -> None:
    assert np.array_equal(decoded(WavDecoder(), data, step), TONE[:1000])


@pytest.mark.parametrize(
    "data",
    [
        b"RIFX" + wav(PLAIN)[4:],
        b"fLaC" * 10,
        wav(PLAIN, kind=2),
        wav(PLAIN, bits=8),
        b"RIFF\0\0\0\0WAVEdata\0\0\0\0",
        wav(PLAIN, tags=struct.pack("<4sI", b"LIST", 70_000) + b"\0" * 70_000),
    ],
)
def test_unsupported_wav_files_are_left_to_ffmpeg_with_all_their_bytes(data: bytes) -> None:
    decoder = WavDecoder()
    taken = 0
    with pytest.raises(UnsupportedWavError):  # noqa: PT012
        for at in range(0, len(data), 100):
            taken = at + 100
            decoder.push(data[at:taken])
    assert decoder.consumed == data[:taken]


def test_wav_that_ends_before_its_samples_is_refused() -> None:
    for cut in (0, 11, 43):
        decoder = WavDecoder()
        decoder.push(wav(PLAIN)[:cut])
        with pytest.raises(RequestError, match="before its samples"):
            decoder.flush()


def amr() -> bytes:
    out = io.BytesIO()
    with av.open(out, "w", format="amr") as container:
        stream = container.add_stream("libopencore_amrnb", rate=8000)
        assert isinstance(stream, AudioStream)
        stream.codec_context.layout = "mono"
        frame = av.AudioFrame.from_ndarray(
            tone(440, 8000, 8000).reshape(1, -1), format="s16", layout="mono"
        )
        frame.sample_rate, frame.pts = 8000, 0
        container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return out.getvalue()


@pytest.mark.parametrize("step", [1, 7, 2048])
def test_amr_in_any_split_is_decoded(step: int) -> None:
    found = decoded(AmrDecoder(), amr(), step)
    assert abs(len(found) - 16_000) <= 960
    assert abs(peak_hz(found[1600:], 16_000) - 440) < 3


def test_amr_wb_decodes_as_with_ffmpeg() -> None:
    data = shared_data("codecs", "command_001.awb").read_bytes()
    whole = decode_file(data)
    found = decoded(AmrDecoder(), data, 2048)
    assert len(found) == len(whole)
    assert np.abs(found.astype(int) - whole).max() <= 1


def test_a_cut_or_damaged_frame_loses_only_itself() -> None:
    data = amr()
    whole = decoded(AmrDecoder(), data, 100)
    assert len(decoded(AmrDecoder(), data[:-3], 100)) == len(whole) - 320
    silences = b"\x7c" * 5 + bytes([8 << 3]) + b"\0" * 5  # no data, then comfort noise
    assert len(decoded(AmrDecoder(), data + silences, 100)) == len(whole) + 6 * 320


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "#!AMR"),
        (b"#!AM", "#!AMR"),
        (b"RIFF....", "#!AMR"),
        (b"#!AMR-WB\n" + bytes([12 << 3]), "type 12"),
    ],
)
def test_data_that_is_not_amr_is_refused(data: bytes, why: str) -> None:
    with pytest.raises(RequestError, match=why):
        decoded(AmrDecoder(), data, 4)
