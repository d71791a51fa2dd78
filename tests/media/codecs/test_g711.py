"""G.711 against published values and against FFmpeg's decoder."""

import av
import numpy as np
import pytest

from media.codecs.g711 import G711Law, decode, encode

EVERY = bytes(range(256))
CODECS: dict[G711Law, str] = {"mu": "pcm_mulaw", "a": "pcm_alaw"}


@pytest.mark.parametrize(
    ("law", "sample", "code"),
    [
        ("mu", 0, 0xFF),
        ("mu", -1, 0x7F),
        ("mu", 32767, 0x80),
        ("mu", -32768, 0x00),
        ("mu", 1000, 0xCE),
        ("mu", -1000, 0x4E),
        ("a", 0, 0xD5),
        ("a", -1, 0x55),
        ("a", 32767, 0xAA),
        ("a", -32768, 0x2A),
        ("a", 1000, 0xFA),
        ("a", -1000, 0x7A),
    ],
)
def test_known_values(law: G711Law, sample: int, code: int) -> None:
    assert encode(np.array([sample], np.int16), law) == bytes([code])


@pytest.mark.parametrize("law", ["mu", "a"])
def test_every_code_decodes_as_with_ffmpeg(law: G711Law) -> None:
    codec = av.AudioCodecContext.create(CODECS[law], "r")
    assert isinstance(codec, av.AudioCodecContext)
    codec.sample_rate, codec.layout = 8000, "mono"
    [frame] = codec.decode(av.Packet(EVERY))
    assert np.array_equal(decode(EVERY, law), frame.to_ndarray()[0])


@pytest.mark.parametrize("law", ["mu", "a"])
def test_decoded_samples_survive_a_second_coding(law: G711Law) -> None:
    again = decode(encode(decode(EVERY, law), law), law)
    assert np.array_equal(again, decode(EVERY, law))


@pytest.mark.parametrize(("law", "quietest"), [("mu", 4), ("a", 16)])
def test_the_error_of_a_sample_is_at_most_half_a_step(law: G711Law, quietest: int) -> None:
    samples = np.arange(-32768, 32768).astype(np.int16)
    heard = decode(encode(samples, law), law).astype(np.int32)
    off = np.abs(heard - samples.astype(np.int32))
    loud = np.abs(samples.astype(np.int32))
    assert (off <= np.maximum(quietest, (loud + 132) / 31)).all()
    assert (np.diff(heard) >= 0).all()
