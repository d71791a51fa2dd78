"""Sound files that are written piece by piece and read back."""

import io
import wave

import numpy as np
import pytest

from media.files.decode import decode_file
from media.files.encode import FORMATS, open_encoder
from tests.media.signals import peak_hz, tone

pytestmark = pytest.mark.many

TONE = tone(440, 16_000, 16_000)


@pytest.mark.parametrize("step", [37, 1600, 16_000])
@pytest.mark.parametrize("kind", FORMATS)
def test_a_written_file_can_be_read(kind: str, step: int) -> None:
    encoder = open_encoder(kind, 16_000)
    assert encoder.content_type.startswith("audio/")
    parts = [encoder.push(TONE[at : at + step]) for at in range(0, len(TONE), step)]
    found = decode_file(b"".join([*parts, encoder.finish()]))
    assert abs(len(found) - len(TONE)) < 1600  # MP3 pads
    assert abs(peak_hz(found, 16_000) - 440) < 3


def test_wav_starts_with_the_first_samples_and_is_read_to_its_end() -> None:
    encoder = open_encoder("wav", 16_000)
    data = encoder.push(TONE[:160])
    assert len(data) == 44 + 320
    data += encoder.finish()
    with wave.open(io.BytesIO(data)) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (16_000, 1, 2)
        found = np.frombuffer(file.readframes(10**6), "<i2")
    assert np.array_equal(found, TONE[:160])
