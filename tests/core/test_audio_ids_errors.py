"""Audio arithmetic, ids and errors."""

import numpy as np
import pytest

from core.audio import AudioFrame, ms_to_samples, samples_to_ms, silence
from core.conversation.ids import new_id
from core.errors import (
    EngineCrashed,
    EngineError,
    OverloadedError,
    PayloadTooLarge,
    RequestError,
    expected_failure,
    first_error,
)


@pytest.mark.parametrize(
    ("ms", "rate_hz", "samples"),
    [(20, 16_000, 320), (20, 48_000, 960), (0.5, 22_050, 11), (0, 8000, 0)],
)  # fmt: skip
def test_milliseconds_convert_to_samples_and_back(ms: float, rate_hz: int, samples: int) -> None:
    assert ms_to_samples(ms, rate_hz) == samples
    assert samples_to_ms(samples, rate_hz) == pytest.approx(ms, abs=0.03)
    assert len(silence(ms, rate_hz)) == samples


def test_a_frame_has_a_duration_and_an_end() -> None:
    frame = AudioFrame(np.zeros(320, np.int16), 16_000, 640)
    assert (frame.duration_ms, frame.end) == (20, 960)


def test_an_id_starts_with_its_kind_and_never_repeats() -> None:
    ids = {new_id("item") for _ in range(1000)}
    assert len(ids) == 1000
    assert all(i.startswith("item_") and len(i) == 29 for i in ids)


def test_errors_carry_stable_codes() -> None:
    assert RequestError("x").code == "invalid_request"
    assert RequestError("x", code="item_not_found", param="item.id").code == "item_not_found"
    assert PayloadTooLarge("x").code == "too_large"
    crashed = EngineCrashed("asr", "whisper", "died")
    assert isinstance(crashed, EngineError)
    assert (crashed.code, crashed.retryable, str(crashed)) == (
        "engine_crashed",
        True,
        "asr engine 'whisper': died",
    )
    assert OverloadedError("full", retry_after_s=5).retry_after_s == 5


def test_first_error_of_a_nested_group() -> None:
    first, second = RequestError("first"), OSError("second")
    group = ExceptionGroup("outer", [ExceptionGroup("inner", [first, second]), second])
    assert first_error(group) is first
    assert first_error(second) is second


def test_a_group_is_an_expected_failure_only_if_all_its_errors_are() -> None:
    first, second = RequestError("first"), OverloadedError("second", retry_after_s=1)
    group = ExceptionGroup("outer", [ExceptionGroup("inner", [first]), second])
    assert expected_failure(group) is first
    assert expected_failure(second) is second
    assert expected_failure(OSError("bug")) is None
    assert expected_failure(ExceptionGroup("outer", [first, OSError("bug")])) is None
