"""Parts of the client: addresses, speech bounds, microphone, received audio, state of a turn."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from bench.client.http import Address, parse_address
from bench.client.latency_probe import AudioReceiver, speech_span
from bench.client.microphone import FRAME_SAMPLES, RATE_HZ, Microphone
from bench.client.realtime import ReceivedEvent
from bench.client.turn import TRANSCRIPTION, TurnLog
from bench.tools.stats import markdown, percentile, spread
from core.audio import AudioFrame, Pcm, silence
from core.errors import RequestError
from tests.bench.client.fake_realtime_server import speech
from tests.media.signals import tone

ANY = "http://127.0.0.1:8080"


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://127.0.0.1:8080", Address("http://127.0.0.1:8080")),
        ("http://127.0.0.1:8080/", Address("http://127.0.0.1:8080")),
        ("localhost:8080", Address("http://localhost:8080")),
        ("https://box.lan:8443/#key=abc-_1", Address("https://box.lan:8443", "abc-_1")),
        ("https://api.example.com/v1", Address("https://api.example.com")),
        ("wss://box/sub/v1/", Address("https://box/sub")),
        ("http://[::1]:8080", Address("http://[::1]:8080")),
    ],
)
def test_valid_addresses_are_parsed(url: str, expected: Address) -> None:
    assert parse_address(url) == expected


@pytest.mark.parametrize("url", ["", "http://", "ftp://box", "http://box:99999", "http://box:0"])
def test_invalid_addresses_are_refused(url: str) -> None:
    with pytest.raises(RequestError, match="is no address"):
        parse_address(url)


def test_a_key_option_overrides_the_key_in_the_address_and_neither_is_shown() -> None:
    address = parse_address("http://box/#key=old", "new")
    assert address.headers == {"Authorization": "Bearer new"}
    assert "new" not in repr(address)
    assert address.realtime("/calls") == "http://box/v1/realtime/calls"
    assert address.realtime(model="a b") == "http://box/v1/realtime?model=a+b"


def noise(samples: int, level: float) -> Pcm:
    return np.random.default_rng(1).normal(0, level, samples).astype(np.int16)


@pytest.mark.parametrize(
    ("background", "tolerance_ms"), [(0, 0), (30, 10), (300, 10)], ids=["clean", "room", "noisy"]
)
def test_the_end_of_speech_is_its_last_audible_sample(
    background: float, tolerance_ms: float
) -> None:
    pcm = speech(lead_ms=500, spoken_ms=400, tail_ms=700)
    span = speech_span(pcm + noise(len(pcm), background), RATE_HZ)
    assert span is not None
    begin_ms, end_ms = (1000 * at / RATE_HZ for at in span)
    assert abs(begin_ms - 500) <= tolerance_ms
    assert abs(end_ms - 900) <= tolerance_ms


@pytest.mark.parametrize("pcm", [silence(500, RATE_HZ), silence(0, RATE_HZ), noise(9000, 5)])
def test_silence_has_no_speech(pcm: Pcm) -> None:
    assert speech_span(pcm, RATE_HZ) is None


def test_a_microphone_knows_when_each_sample_was_sent() -> None:
    async def main() -> None:
        times = iter([10.0, 10.02, 10.05, 10.06])  # one frame late
        microphone = Microphone(lambda: next(times))
        assert not microphone.pull().pcm.any()
        pcm = tone(300, FRAME_SAMPLES + 10, RATE_HZ)
        async with asyncio.TaskGroup() as tasks:
            speech_task = tasks.create_task(microphone.say(pcm))
            await asyncio.sleep(0)
            first = microphone.pull()
            assert not speech_task.done()
            last = microphone.pull()
        assert speech_task.result() == first.start == FRAME_SAMPLES
        assert last.pcm[:10].tolist() == pcm[-10:].tolist()
        assert not last.pcm[10:].any()
        assert not microphone.pull().pcm.any()
        assert microphone.spoken_at(first.start) == pytest.approx(10.0)
        assert microphone.spoken_at(last.start) == pytest.approx(10.03)
        assert microphone.spoken_at(last.end) == pytest.approx(10.04)
        assert microphone.spoken_at(microphone.position) is None
        sent, begin = microphone.sent_since(first.start)
        assert begin == first.start
        assert len(sent) == 3 * FRAME_SAMPLES

    asyncio.run(main())


def test_a_microphone_drops_the_backlog_of_a_fast_sound_card() -> None:
    microphone = Microphone(lambda: 0.0)
    for value in range(1, 31):
        microphone.feed(np.full(FRAME_SAMPLES, value, np.int16))
    assert microphone.pull().pcm[0] == 21


def beep(lead_samples: int, samples: int) -> AudioFrame:
    pcm = np.concatenate([np.zeros(lead_samples, np.int16), tone(500, samples, RATE_HZ)])
    return AudioFrame(pcm, RATE_HZ, 0)


def test_an_answer_begins_with_its_first_audible_sample() -> None:
    receiver = AudioReceiver(is_paced=True)
    receiver.receive(AudioFrame(silence(20, RATE_HZ), RATE_HZ, 0), 1.0)
    assert receiver.audible_at is None
    receiver.receive(beep(240, 240), 1.02)
    assert receiver.audible_at == pytest.approx(1.03, abs=0.0005)
    receiver.receive(AudioFrame(silence(20, RATE_HZ), RATE_HZ, 0), 1.04)
    assert len(receiver.audible_frames()) == 1
    receiver.begin_turn()
    assert receiver.audible_at is None
    assert receiver.audible_frames() == []


def test_audio_that_arrives_faster_than_real_time_is_played_in_sequence() -> None:
    receiver = AudioReceiver(is_paced=False)
    receiver.receive(beep(0, RATE_HZ), 5.0)
    receiver.receive(beep(0, RATE_HZ), 5.01)
    assert receiver.audible_at == pytest.approx(5.0, abs=0.001)
    assert receiver.silent_from == pytest.approx(7.0, abs=0.002)
    assert receiver.interrupt(6.5) == 1500
    assert receiver.silent_from == 6.5
    assert receiver.interrupt(6.6) is None


Event = Mapping[str, Any]


def log_of(*events: Event) -> TurnLog:
    log = TurnLog()
    for at, event in enumerate(events):
        log.add(ReceivedEvent(event, float(at)))
    return log


def utterance(number: int = 1) -> Sequence[Event]:
    """Returns the events of a committed and transcribed utterance."""
    return (
        {"type": "input_audio_buffer.speech_started", "audio_start_ms": 0},
        {"type": "input_audio_buffer.speech_stopped", "audio_end_ms": 900},
        {"type": "input_audio_buffer.committed", "item_id": f"u{number}"},
        {
            "type": f"{TRANSCRIPTION}.completed",
            "item_id": f"u{number}",
            "transcript": f"part {number}",
        },
    )


def response(number: int = 1, status: str = "completed") -> Sequence[Event]:
    """Returns the events of a response whose audio has not begun."""
    ids = {"response_id": f"r{number}"}
    return (
        {"type": "response.created", "response": {"id": f"r{number}", "status": "in_progress"}},
        {"type": "response.output_item.added", **ids, "item": {"id": "a", "type": "message"}},
        {"type": "response.output_audio_transcript.delta", **ids, "delta": f"Answer {number}."},
        {"type": "response.done", "response": {"id": f"r{number}", "status": status}},
    )


def playout(stage: str, number: int = 1) -> Event:
    return {"type": f"output_audio_buffer.{stage}", "response_id": f"r{number}"}


STARTED, STOPPED = utterance()[:2]
BLIP = ({**STARTED, "audio_start_ms": 5000}, {**STOPPED, "audio_end_ms": 5000})
REJECTED = {"type": "earshot.turn", "turn": {"status": "rejected", "stages": []}}


@pytest.mark.parametrize(
    ("events", "is_over", "reply"),
    [
        ((), False, ""),
        (utterance(), False, ""),
        ((*utterance(), *response()), False, "Answer 1."),
        ((*utterance(), *response(), playout("started")), False, "Answer 1."),
        ((*utterance(), *response(), playout("started"), playout("stopped")), True, "Answer 1."),
        ((*utterance(), *response(status="failed")), True, "Answer 1."),
        (
            (*utterance(), *response(), playout("started"), playout("cleared"), *utterance(2)),
            False,
            "",
        ),
        ((*utterance(), *response(), playout("cleared"), STARTED, STOPPED), False, "Answer 1."),
        ((*utterance(), *response(), playout("stopped"), *BLIP), True, "Answer 1."),
        (
            (*utterance(), *response(), *utterance(2), *response(2), playout("stopped", 1)),
            False,
            "Answer 2.",
        ),
        (
            (*utterance(), *response(), *utterance(2), *response(2), playout("stopped", 2)),
            True,
            "Answer 2.",
        ),
        ((STARTED, STOPPED, REJECTED), True, ""),
    ],
)
def test_a_turn_is_over_when_its_answer_has_played(
    events: Sequence[Event], is_over: bool, reply: str
) -> None:
    log = log_of(*events)
    assert log.is_over(has_sound_events=True) == is_over
    assert log.reply == reply


def test_late_events_of_a_truncated_answer_do_not_belong_to_the_next() -> None:
    def traced(number: int) -> Event:
        turn = {"response_id": f"r{number}", "response_latency_ms": 100.0 * number, "stages": []}
        return {"type": "earshot.turn", "turn": turn}

    log = log_of(*utterance(), *response(), *utterance(2), *response(2), traced(1))
    assert (log.has_server_times, log.server_latency_ms) == (False, None)
    log.add(ReceivedEvent(traced(2), 0.0))
    assert (log.has_server_times, log.server_latency_ms) == (True, 200.0)


def test_without_playout_events_a_turn_ends_with_its_response() -> None:
    log = log_of(*utterance(), *response())
    assert log.is_over(has_sound_events=False)
    assert not log_of(*utterance(), *response()[:-1]).is_over(has_sound_events=False)


def test_a_recording_with_a_pause_has_both_parts_in_its_transcript() -> None:
    log = log_of(*utterance(), *response(), *utterance(2), *response(2))
    assert log.transcript == "part 1 part 2"


def test_hypotheses_are_not_repeated_by_deltas() -> None:
    hypothesis = {"type": "earshot.hypothesis", "stable": "turn on", "unstable": "the"}
    delta = {"type": f"{TRANSCRIPTION}.delta", "delta": "turn on the lights"}
    log = log_of(hypothesis, delta)
    assert (log.stable, log.unstable, log.first_words_at) == ("turn on", "the", 0.0)
    assert log_of(delta, {**delta, "delta": " now"}).stable == "turn on the lights now"


def test_a_failed_response_has_its_reason() -> None:
    error = {"type": "server_error", "code": "engine_failed", "message": "it broke"}
    failed = {"id": "r1", "status": "failed", "status_details": {"error": error}}
    log = log_of(response()[0], {"type": "response.done", "response": failed})
    assert log.outcome(has_audio=False) == "failed"
    assert log.error == "it broke (engine_failed)"


def test_unknown_events_are_ignored() -> None:
    log = log_of({"type": "what.is.this"}, {}, {"type": "error"}, {"type": "response.done"})
    assert log.outcome(has_audio=False) == "unanswered"


def test_statistics_of_few_values() -> None:
    assert percentile([1, 2, 3, 4, 5], 50) == 3
    assert spread([10.0, 20.0]) == ["15", "20", "10", "20", "2"]
    assert spread([]) == ["-", "-", "-", "-", "0"]
    with pytest.raises(ValueError, match="at least one value"):
        percentile([], 50)
    assert markdown(["a", "b"], [["1", "2"]]) == "| a | b |\n| --- | --- |\n| 1 | 2 |"
