import numpy as np
import pytest

from core.errors import RemoteProtocolError
from media.opus import (
    ENCODER_RATES_HZ,
    MAX_PACKET_BYTES,
    BadAudioPacket,
    OpusDecoder,
    OpusEncoder,
    OpusSettings,
)
from tests.media.signals import peak_hz, tone


@pytest.mark.parametrize("application", ["voip", "audio", "lowdelay"])
@pytest.mark.parametrize("frame_ms", [20, 60])
@pytest.mark.parametrize("rate_hz", ENCODER_RATES_HZ)
def test_tone_survives(application: str, frame_ms: int, rate_hz: int) -> None:
    settings = OpusSettings(application=application, frame_ms=frame_ms)  # type: ignore[arg-type]
    encoder, decoder = OpusEncoder(rate_hz, settings), OpusDecoder()
    samples = encoder.frame_samples
    heard = [
        decoder.decode(encoder.encode(tone(600, samples, rate_hz, start=i * samples)))
        for i in range(10)
    ]
    assert {len(pcm) for pcm in heard} == {48 * frame_ms}
    assert peak_hz(np.concatenate(heard[2:]), 48000) == pytest.approx(600, abs=10)


def test_packet_has_its_bitrate() -> None:
    encoder = OpusEncoder(48000, OpusSettings(bitrate_bps=32_000))
    noise = np.random.default_rng(1).normal(0, 3000, (50, 960)).astype(np.int16)
    assert sum(len(encoder.encode(pcm)) for pcm in noise) == pytest.approx(4000, rel=0.15)


@pytest.mark.parametrize("samples", [0, 959, 961, 1920])
def test_encoder_takes_exactly_one_frame(samples: int) -> None:
    with pytest.raises(ValueError, match="960"):
        OpusEncoder(48000).encode(np.zeros(samples, np.int16))


@pytest.mark.parametrize("dtx", ["f8", "f8ff", "f8fffe", "08"])
def test_dtx_packets_are_quiet_audio(dtx: str) -> None:
    heard = OpusDecoder().decode(bytes.fromhex(dtx))
    assert len(heard) in (960, 1920)
    assert np.abs(heard).max() < 100


@pytest.mark.parametrize("bad", [b"", b"\x03", b"\xff\xff\xff", b"x" * (MAX_PACKET_BYTES + 1)])
def test_a_bad_packet_is_named_and_the_next_one_decodes(bad: bytes) -> None:
    encoder, decoder = OpusEncoder(48000), OpusDecoder()
    with pytest.raises(BadAudioPacket) as error:
        decoder.decode(bad)
    assert isinstance(error.value, RemoteProtocolError)
    assert error.value.code == "bad_audio_packet"
    assert len(decoder.decode(encoder.encode(np.zeros(960, np.int16)))) == 960


@pytest.mark.parametrize("application", ["voip", "lowdelay"])
@pytest.mark.parametrize("frame_ms", [20, 60])
def test_a_lost_packet_is_concealed_by_more_of_the_same(application: str, frame_ms: int) -> None:
    settings = OpusSettings(application=application, frame_ms=frame_ms)  # type: ignore[arg-type]
    encoder, decoder = OpusEncoder(48000, settings), OpusDecoder()
    assert not len(decoder.conceal())
    samples = encoder.frame_samples
    for i in range(10):
        decoder.decode(encoder.encode(tone(500, samples, 48000, start=i * samples)))
    guess = decoder.conceal()
    assert len(guess) in (samples, 960)  # lowdelay: a packet of three frames of 20 ms
    assert peak_hz(guess, 48000) == pytest.approx(500, abs=60)
    assert np.abs(guess).max() == pytest.approx(8000, rel=0.15)
    for _ in range(20):
        guess = decoder.conceal()
    assert np.abs(guess).max() < 2000


@pytest.mark.parametrize(
    "wrong",
    [{"bitrate_bps": 5000}, {"bitrate_bps": 600_000}, {"application": "fax"}, {"frame_ms": 30}],
)
def test_settings_are_checked(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        OpusSettings(**wrong)  # type: ignore[arg-type]


def test_rate_is_checked() -> None:
    with pytest.raises(ValueError, match="44100"):
        OpusEncoder(44100)
