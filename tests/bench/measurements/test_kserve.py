"""Requests of the KServe measurement are valid for the KServe door."""

import numpy as np

from bench.measurements.kserve import PREFIX, infer_body
from web.kserve.json_body import decode_infer
from web.kserve.speech import speech_items


def test_a_body_has_each_recording_with_its_length_and_prefix() -> None:
    rows = [np.full(length, 0.5, np.float32) for length in (3, 1)]
    body, json_bytes = infer_body(rows)
    items = speech_items(decode_infer("infer_bls", "", body, str(json_bytes)).request)
    assert [len(item.pcm) for item in items] == [3, 1]
    assert [item.prefix for item in items] == [PREFIX, PREFIX]
    assert items[0].pcm.tolist() == [16384] * 3
