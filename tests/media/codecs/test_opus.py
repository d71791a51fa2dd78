import numpy as np
import pytest

from core.audio import Pcm
from core.errors import RemoteProtocolError
from media.codecs.libopus import library
from media.codecs.opus import (
    MAX_PACKET_BYTES,
    OPUS_RATES_HZ,
    InvalidOpusPacket,
    OpusDecoder,
    OpusEncoder,
    OpusSettings,
)
from tests.media.signals import peak_hz, tone

pytestmark = pytest.mark.many


@pytest.mark.parametrize("application", ["voip", "audio", "lowdelay"])
@pytest.mark.parametrize("frame_ms", [20, 60])
@pytest.mark.parametrize("rate_hz", OPUS_RATES_HZ)
def test_a_tone_survives_coding(application: str, frame_ms: int, rate_hz: int) -> None:
    settings = OpusSettings(application=application, frame_ms=frame_ms)  # type: ignore[arg-type]
    encoder, decoder = OpusEncoder(rate_hz, settings), OpusDecoder()
    samples = encoder.frame_samples
    heard = [
        decoder.decode(encoder.encode(tone(600, samples, rate_hz, start=i * samples)))
        for i in range(10)
    ]
    assert {len(pcm) for pcm in heard} == {48 * frame_ms}
    assert peak_hz(np.concatenate(heard[2:]), 48000) == pytest.approx(600, abs=10)


def test_packets_keep_the_bitrate() -> None:
    encoder = OpusEncoder(48000, OpusSettings(bitrate_bps=32_000))
    noise = np.random.default_rng(1).normal(0, 3000, (50, 960)).astype(np.int16)
    assert sum(len(encoder.encode(pcm)) for pcm in noise) == pytest.approx(4000, rel=0.15)


def test_only_the_fixed_arguments_of_a_variadic_function_are_declared() -> None:
    """Otherwise ctypes would call it as a non-variadic function, which fails on Apple's ARM."""
    assert len(library().opus_encoder_ctl.argtypes or ()) == 2


@pytest.mark.parametrize("samples", [0, 959, 961, 1920])
def test_the_encoder_takes_exactly_one_frame(samples: int) -> None:
    with pytest.raises(ValueError, match="960"):
        OpusEncoder(48000).encode(np.zeros(samples, np.int16))


@pytest.mark.parametrize("dtx", ["f8", "f8ff", "f8fffe", "08"])
def test_dtx_packets_decode_to_quiet_audio(dtx: str) -> None:
    heard = OpusDecoder().decode(bytes.fromhex(dtx))
    assert len(heard) in (960, 1920)
    assert np.abs(heard).max() < 100


@pytest.mark.parametrize("bad", [b"", b"\x03", b"\xff\xff\xff", b"x" * (MAX_PACKET_BYTES + 1)])
def test_a_bad_packet_is_named_and_the_next_one_decodes(bad: bytes) -> None:
    encoder, decoder = OpusEncoder(48000), OpusDecoder()
    with pytest.raises(InvalidOpusPacket) as error:
        decoder.decode(bad)
    assert isinstance(error.value, RemoteProtocolError)
    assert error.value.code == "bad_audio_packet"
    assert len(decoder.decode(encoder.encode(np.zeros(960, np.int16)))) == 960


@pytest.mark.parametrize("application", ["voip", "lowdelay"])
@pytest.mark.parametrize("frame_ms", [20, 60])
def test_a_lost_packet_is_concealed_by_continued_sound(application: str, frame_ms: int) -> None:
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
def test_wrong_settings_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        OpusSettings(**wrong)  # type: ignore[arg-type]


def test_an_unknown_sample_rate_is_refused() -> None:
    with pytest.raises(ValueError, match="44100"):
        OpusEncoder(44100)


MAX_TAIL_FRAMES = 20
"""The number of frames of 20 ms until libopus has only silence; its filter of constant voltage is
slow."""


class EveryFrame(OpusEncoder):
    """An encoder that passes every packet to libopus, silence included."""

    def encode(self, pcm: Pcm) -> bytes:
        return self._coded(pcm)


def speech(rate_hz: int, frames: int, hz: float) -> Pcm:
    """Returns rows of 20 ms with a voice's harmonics, changing loudness and a constant offset."""
    samples = frames * rate_hz // 50
    voice = sum(tone(hz * n, samples, rate_hz, level=6000 // n).astype(float) for n in (1, 2, 3, 5))
    shape = 0.6 + 0.4 * np.sin(2 * np.pi * 4 * np.arange(samples) / rate_hz)
    pcm: Pcm = (voice * shape + 200).astype(np.int16)
    return pcm.reshape(frames, -1)


def silence(rate_hz: int, frames: int = 50) -> Pcm:
    return np.zeros((frames, rate_hz // 50), np.int16)


def decoded(packets: list[bytes]) -> "np.ndarray[tuple[int, ...], np.dtype[np.float64]]":
    decoder = OpusDecoder()
    return np.array([decoder.decode(packet) for packet in packets], np.float64)


@pytest.mark.parametrize("rate_hz", OPUS_RATES_HZ)
def test_packets_equal_those_of_an_encoder_that_codes_silence(rate_hz: int) -> None:
    pcm = [*speech(rate_hz, 50, 140), *silence(rate_hz, 500)]
    ours, whole = OpusEncoder(rate_hz), EveryFrame(rate_hz)
    assert [ours.encode(one) for one in pcm] == [whole.encode(one) for one in pcm]
    assert ours.coded_frames <= 50 + MAX_TAIL_FRAMES
    assert whole.coded_frames == 550


def test_initial_silence_is_coded_once() -> None:
    encoder = OpusEncoder(48000)
    assert len({encoder.encode(one) for one in silence(48000)}) == 1
    assert encoder.coded_frames == 1


@pytest.mark.parametrize("rate_hz", [24000, 48000])
@pytest.mark.parametrize("silent_frames", [10, 17, 18, 50, 500])
def test_sound_after_skipped_silence_equals_sound_after_coded_silence(
    rate_hz: int, silent_frames: int
) -> None:
    before, after = speech(rate_hz, 50, 140), speech(rate_hz, 50, 220)
    pcm = [*before, *silence(rate_hz, silent_frames), *after]
    ours, whole = (
        decoded([encoder.encode(one) for one in pcm])
        for encoder in (OpusEncoder(rate_hz), EveryFrame(rate_hz))
    )
    begins = 50 + silent_frames
    assert np.array_equal(ours[:begins], whole[:begins])
    assert np.abs(ours[50 + MAX_TAIL_FRAMES : begins]).max(initial=0) == 0
    levels, expected = (np.sqrt((one[begins:] ** 2).mean(axis=1)) for one in (ours, whole))
    assert np.abs(20 * np.log10(levels / expected)).max() < 0.5, "dB, from the first packet on"
    errors = np.sqrt(((ours - whole)[begins:] ** 2).mean(axis=1)) / expected
    assert errors.max() < 0.15, "as a fraction: the bits that were saved are spent otherwise"


@pytest.mark.parametrize("application", ["audio", "lowdelay", "voip"])
def test_sound_at_the_end_of_a_frame_is_sent(application: str) -> None:
    settings = OpusSettings(application=application)  # type: ignore[arg-type]
    encoder = OpusEncoder(48000, settings)
    end = np.zeros(960, np.int16)
    end[-96:] = 8000
    pcm = [*speech(48000, 50, 140), *silence(48000), end, *silence(48000, 5)]
    heard = decoded([encoder.encode(one) for one in pcm])
    assert np.abs(heard[100:]).max() > 2000


def test_silence_is_coded_if_no_packet_is_known_to_be_pure_silence() -> None:
    encoder = OpusEncoder(16000, OpusSettings(bitrate_bps=16_000, application="voip"))
    pcm = [*speech(16000, 50, 140), *silence(16000)]
    assert {packet[0] >> 7 for packet in [encoder.encode(one) for one in pcm][-20:]} == {0}, "SILK"
    assert encoder.coded_frames == len(pcm)
