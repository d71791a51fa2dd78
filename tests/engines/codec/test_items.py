"""Items of a worker: bytes in, bytes out, and what belongs together is computed together."""

import numpy as np
import pytest

from core.errors import RequestError
from engines.base.codec import CodecItem
from engines.codec.items import codes_from_bytes, convert, samples_from_bytes
from tests.engines.codec.loudness_codec import FRAME_SAMPLES, LoudnessCodec


def test_items_of_one_kind_share_a_call_and_keep_their_order() -> None:
    model = LoudnessCodec()
    loud = np.full(FRAME_SAMPLES * 3, 16384, "<i2").tobytes()
    codes = np.array([[8, 16], [8, 16]], "<i2").tobytes()
    results = convert(
        model,
        [
            CodecItem("encode", loud, 2),
            CodecItem("decode", codes, 2),
            CodecItem("encode", b"", 2),
            CodecItem("encode", loud, 4),
        ],
    )
    assert sorted(model.calls) == [("decode", 1), ("encode", 1), ("encode", 2)]
    assert codes_from_bytes(results[0].data, 2).tolist() == [[[32] * 3] * 2]
    sound = samples_from_bytes(results[1].data)
    assert len(sound) == 2 * FRAME_SAMPLES
    assert (sound[0], sound[-1]) == (0.125, 0.25)
    assert results[2].data == b""
    assert codes_from_bytes(results[3].data, 4).shape == (1, 4, 3)


@pytest.mark.parametrize("code", [-1, 64])
def test_a_code_outside_the_codebook_is_the_callers_error(code: int) -> None:
    data = np.array([0, code], "<i2").tobytes()
    with pytest.raises(RequestError, match="outside 0 to 63"):
        convert(LoudnessCodec(), [CodecItem("decode", data, 2)])
