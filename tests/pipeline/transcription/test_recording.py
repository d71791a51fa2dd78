"""Whole recordings with a scripted recogniser, in virtual time."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
import pytest

from core.audio import Pcm
from core.errors import EngineError, NotFound, OverloadedError, RequestError
from engines.base import AsrOptions, AsrResult
from pipeline.transcription.recording import RecordingTranscription, Transcriber, Transcript
from pipeline.transcription.segment import FEED_MS
from serving.asr.scheduling import DecodePriority
from tests.loop import run_virtual
from tests.pipeline.fakes import LevelAsr, World
from tests.pipeline.scripted import MS, audio

pytestmark = pytest.mark.many

WINDOW_MS = 10_000
ENGLISH = AsrOptions("en")
LONG = audio(
    *[(0, 700), (1000, 2000), (0, 500), (2000, 5000), (0, 300), (3000, 6000), (0, 4000)],
    *[(4000, 1000), (0, 15_000), (1000, 2000), (0, 100), (2000, 7000)],
)
LONG_WORDS = "one two three four one two"


def windowed(delay_s: float = 0.05, languages: tuple[str, ...] = ("en",)) -> LevelAsr:
    return LevelAsr(delay_s, window_ms=WINDOW_MS, languages=languages)


def with_recording(
    asr: LevelAsr,
    scenario: Callable[[RecordingTranscription], Awaitable[None]],
    *,
    options: AsrOptions = ENGLISH,
    priority: DecodePriority = DecodePriority.BATCH,
    eager: bool = False,
) -> float:
    """Runs the scenario; returns the virtual seconds that it took."""

    async def main() -> None:
        transcriber = Transcriber(World(asr=asr).services().engines)
        opened = transcriber.open("default", options, priority=priority, eager=eager)
        async with opened as recording:
            await scenario(recording)

    return run_virtual(main())


def transcript_of(asr: LevelAsr, pcm: Pcm, block_ms: int = 500, **how: object) -> Transcript:
    out: list[Transcript] = []

    async def scenario(recording: RecordingTranscription) -> None:
        for at in range(0, len(pcm), block_ms * MS):
            await recording.push(pcm[at : at + block_ms * MS])
        recording.end()
        out.append(await recording.transcript())

    with_recording(asr, scenario, **how)  # type: ignore[arg-type]
    return out[0]


@pytest.mark.parametrize(("quiet_ms", "added_ms"), [(0, 300), (100, 200), (300, 0), (500, 0)])
@pytest.mark.parametrize("is_eager", [False, True])
def test_a_recogniser_without_a_window_gets_silence_before_speech_that_is_cut_tightly(
    quiet_ms: int, added_ms: int, is_eager: bool
) -> None:
    asr = LevelAsr(is_incremental=is_eager)
    pcm = audio((0, quiet_ms), (1000, 600))
    transcript = transcript_of(asr, pcm, eager=is_eager)
    *_, (_, _, item) = asr.asked
    assert np.array_equal(item.pcm, np.append(audio((0, added_ms)), pcm))
    assert (transcript.text, transcript.audio_ms) == ("one", quiet_ms + 600)


@pytest.mark.parametrize("ms", [200, 410, WINDOW_MS])
def test_a_recording_within_the_window_is_one_unchanged_item(ms: int) -> None:
    asr = windowed()
    pcm = audio((1000, ms))
    transcript = transcript_of(asr, pcm)
    ((_, priority, item),) = asr.asked
    assert np.array_equal(item.pcm, pcm)
    assert (priority, item.is_final, item.options) == (DecodePriority.BATCH, True, ENGLISH)
    assert (transcript.text, transcript.audio_ms) == ("one", ms)


@pytest.mark.parametrize(("level", "ms"), [(0, 20), (0, WINDOW_MS), (0, 25_000), (1000, 100)])
def test_a_recording_without_speech_is_not_decoded_unless_requested(level: int, ms: int) -> None:
    asr = windowed()
    pcm = audio((level, ms), (0, 200))
    assert transcript_of(asr, pcm).text == ""
    assert asr.asked == []
    if ms < WINDOW_MS:
        insisting = replace(ENGLISH, no_speech_threshold=1.0)
        transcript_of(asr, pcm, options=insisting)
        assert len(asr.asked) == 1


def test_an_empty_recording_has_an_empty_transcript() -> None:
    asr = windowed(languages=("de", "en"))
    assert transcript_of(asr, audio((0, 0)), options=AsrOptions("en")) == Transcript(
        "", "en", 0.0, 0.0, (), (), ()
    )
    assert not asr.asked


@pytest.mark.parametrize("block_ms", [20, 500, 60_000])
def test_a_long_recording_keeps_every_word_in_order_and_in_time(block_ms: int) -> None:
    transcript = transcript_of(windowed(), LONG, block_ms)
    assert transcript.text == LONG_WORDS
    assert transcript.audio_ms == len(LONG) / MS
    starts = [word.start_ms for word in transcript.words]
    assert starts == pytest.approx([700, 3200, 8500, 18_500, 34_500, 36_600], abs=20)
    assert all(a.end_ms <= b.start_ms for a, b in pairwise(transcript.words))
    assert all(a.end_ms <= b.start_ms for a, b in pairwise(transcript.segments))
    assert transcript.segments[-1].end_ms == len(LONG) / MS


def test_long_silence_is_not_decoded() -> None:
    asr = windowed()
    assert transcript_of(asr, audio((0, 60_000))).text == ""
    assert not asr.asked


def test_segments_are_decoded_during_the_upload_and_returned_in_order() -> None:
    asr = windowed()
    texts: list[tuple[float, str]] = []

    async def scenario(recording: RecordingTranscription) -> None:
        loop = asyncio.get_running_loop()

        async def read() -> None:
            texts.extend([(loop.time(), part.text) async for part in recording.segment_results()])

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(read())
            for at in range(0, len(LONG), 100 * MS):
                await asyncio.sleep(0.1)
                await recording.push(LONG[at : at + 100 * MS])
            recording.end()

    with_recording(asr, scenario)
    assert " ".join(text for _, text in texts) == LONG_WORDS
    first_s, last_s = texts[0][0], texts[-1][0]
    assert first_s == pytest.approx(WINDOW_MS / 1000, abs=1.2)
    assert last_s == pytest.approx(len(LONG) / MS / 1000, abs=0.2)


def test_a_limited_number_of_segments_is_decoded_in_parallel() -> None:
    asr = windowed(delay_s=10)
    pcm = audio(*[(1000, 9000), (0, 4000)] * 20)
    pushed: list[float] = []

    async def scenario(recording: RecordingTranscription) -> None:
        await recording.push(pcm)
        pushed.append(asyncio.get_running_loop().time())
        recording.end()
        assert (await recording.transcript()).text == " ".join(["one"] * 20)

    took_s = with_recording(asr, scenario)
    assert asr.most_running == 2 * asr.info.max_batch
    assert pushed[0] >= 20  # it waited for slots: 20 pieces, 8 at a time
    assert took_s == pytest.approx(30)


@pytest.mark.parametrize(
    ("options", "asked"),
    [
        (AsrOptions(), [None, None, "en", "en"]),
        (AsrOptions(languages=("de", "en")), [None, None, "en", "en"]),
        (AsrOptions("de"), ["de"] * 4),
    ],
)
def test_the_first_words_decide_the_language_of_the_recording(
    options: AsrOptions, asked: list[str | None]
) -> None:
    asr = windowed(languages=("de", "en"))
    pcm = audio((5000, 2000), *[(0, 4000), (1000, 2000)] * 3)
    assert transcript_of(asr, pcm, options=options).language == asked[-1]
    assert [item.options.language for _, _, item in asr.asked] == asked


def test_a_refused_first_segment_raises_and_a_later_one_is_retried() -> None:
    async def refused(recording: RecordingTranscription) -> None:
        await recording.push(LONG)
        recording.end()
        with pytest.raises(OverloadedError):
            await recording.transcript()

    asr = windowed()
    asr.refuses = frozenset({DecodePriority.BATCH})
    with_recording(asr, refused)

    async def later(recording: RecordingTranscription) -> None:
        await recording.push(LONG[: 25_000 * MS])
        parts = aiter(recording.segment_results())
        texts = [(await anext(parts)).text]
        asr.refuses = frozenset({DecodePriority.BATCH})
        await recording.push(LONG[25_000 * MS :])
        await asyncio.sleep(0.5)
        asr.refuses = frozenset()
        recording.end()
        texts += [part.text async for part in parts]
        assert " ".join(texts) == LONG_WORDS

    asr = windowed()
    with_recording(asr, later)


def test_a_failed_segment_fails_the_recording_and_stops_the_upload() -> None:
    asr = windowed()
    asr.broken = True

    async def scenario(recording: RecordingTranscription) -> None:
        await recording.push(LONG[: 25_000 * MS])
        await asyncio.sleep(0.1)
        with pytest.raises(EngineError, match="broken on purpose"):
            await recording.push(LONG[25_000 * MS :])
        recording.end()
        with pytest.raises(EngineError, match="broken on purpose"):
            await recording.transcript()

    with_recording(asr, scenario)


def test_an_error_of_the_caller_cancels_decodes_and_is_raised() -> None:
    asr = windowed(delay_s=100)

    async def scenario(recording: RecordingTranscription) -> None:
        await recording.push(LONG)
        recording.end()
        await asyncio.sleep(1)
        raise RequestError("the client wants no more")

    with pytest.raises(RequestError, match="wants no more"):
        with_recording(asr, scenario)
    assert asr.running == 0
    assert asr.forgotten == [item.utterance for _, _, item in asr.asked]


def test_a_cancelled_caller_leaves_no_decodes_running() -> None:
    asr = windowed(delay_s=100)

    async def main() -> None:
        transcriber = Transcriber(World(asr=asr).services().engines)

        async def call() -> None:
            async with transcriber.open("default", ENGLISH) as recording:
                await recording.push(LONG)
                recording.end()
                await recording.transcript()

        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(call())
            await asyncio.sleep(5)
            task.cancel()

    assert run_virtual(main()) == pytest.approx(5)
    assert asr.running == 0


@dataclass
class Queue:
    """The queue of a recogniser that is held while it is used and refuses work when it is full."""

    is_full: bool = False
    events: list[str] = field(default_factory=list)

    def admit(self, priority: DecodePriority) -> None:
        self.events.append(priority.name)
        if self.is_full:
            raise OverloadedError("a minute of work waits", retry_after_s=60, code="engine_busy")

    @contextmanager
    def hold(self) -> Iterator[None]:
        self.events.append("held")
        yield
        self.events.append("released")


class QueuedAsr(LevelAsr):
    def __init__(self, queue: Queue) -> None:
        super().__init__(window_ms=WINDOW_MS)
        self._queue = queue

    def admit(self, priority: DecodePriority) -> None:
        self._queue.admit(priority)

    def hold(self) -> AbstractContextManager[None]:
        return self._queue.hold()


def test_the_model_is_held_for_the_whole_recording() -> None:
    queue = Queue()
    assert transcript_of(QueuedAsr(queue), LONG).text == LONG_WORDS
    assert queue.events == ["BATCH", "held", "released"]


def test_a_recording_is_refused_before_its_upload_if_the_queue_is_full() -> None:
    queue = Queue(is_full=True)
    with pytest.raises(OverloadedError, match="a minute of work"):
        transcript_of(QueuedAsr(queue), LONG)
    assert queue.events == ["BATCH"]


def test_an_eager_upload_in_one_block_is_decoded_once() -> None:
    asr = windowed()
    pcm = audio(*[(1000, 600), (0, 400)] * 9)
    assert transcript_of(asr, pcm, 20_000, eager=True).text == " ".join(["one"] * 9)
    assert len(asr.asked) == 1


# Commands, transcribed while they come in.


def spoken(recording: RecordingTranscription, pcm: Pcm) -> Awaitable[None]:
    async def push() -> None:
        for at in range(0, len(pcm), 20 * MS):
            await asyncio.sleep(0.02)
            await recording.push(pcm[at : at + 20 * MS])

    return push()


COMMAND = audio((0, 300), (1000, 800), (0, 200), (2000, 1500))


@pytest.mark.parametrize("tail_ms", [300, 900])
def test_an_eager_command_is_transcribed_when_it_ends(tail_ms: int) -> None:
    asr = windowed(delay_s=0.15)
    pcm = np.concatenate([COMMAND, audio((0, tail_ms))])
    waited: list[float] = []
    texts: list[AsrResult] = []

    async def scenario(recording: RecordingTranscription) -> None:
        await spoken(recording, pcm)
        ended = asyncio.get_running_loop().time()
        recording.end()
        texts.extend([part async for part in recording.segment_results()])
        waited.append(asyncio.get_running_loop().time() - ended)

    with_recording(asr, scenario, priority=DecodePriority.FINAL, eager=True)
    assert waited == [pytest.approx(0, abs=0.01)]
    plain = transcript_of(windowed(), pcm)
    assert [result.text for result in texts] == [plain.text] == ["one two"]
    assert texts[0].words == plain.words
    # The pause between the words began one decode; more speech made it void.
    assert [priority for _, priority, _ in asr.asked] == [DecodePriority.SPECULATIVE] * 2
    assert asr.running == 0


def test_an_eager_command_without_a_pause_is_decoded_at_its_end() -> None:
    asr = windowed()

    async def scenario(recording: RecordingTranscription) -> None:
        await spoken(recording, COMMAND)
        recording.end()
        assert (await recording.transcript()).text == "one two"

    with_recording(asr, scenario, priority=DecodePriority.FINAL, eager=True)
    assert [priority for _, priority, _ in asr.asked] == [
        DecodePriority.SPECULATIVE,
        DecodePriority.FINAL,
    ]
    assert len(asr.asked[-1][2].pcm) == len(COMMAND)


@pytest.mark.parametrize("is_incremental", [False, True])
def test_a_refused_eager_decode_is_repeated_at_the_end(is_incremental: bool) -> None:
    asr = LevelAsr(window_ms=WINDOW_MS, is_incremental=is_incremental)
    asr.refuses = frozenset({DecodePriority.SPECULATIVE, DecodePriority.PARTIAL})
    pcm = np.concatenate([COMMAND, audio((0, 500))])
    how = {"priority": DecodePriority.FINAL, "eager": True}
    assert transcript_of(asr, pcm, 20, **how).text == "one two"
    assert asr.decoded == [(DecodePriority.FINAL, len(pcm) / MS / 1000)]


def test_a_client_that_leaves_in_a_pause_leaves_no_decode_running() -> None:
    asr = windowed(delay_s=30)

    async def scenario(recording: RecordingTranscription) -> None:
        await spoken(recording, np.concatenate([COMMAND, audio((0, 300))]))
        assert asr.running == 1

    assert with_recording(asr, scenario, priority=DecodePriority.FINAL, eager=True) < 4
    assert len(asr.forgotten) == len(asr.asked)


def test_a_void_eager_decode_is_counted_as_wasted() -> None:
    """The decode in the pause within the command is wasted; the one at its end is used."""
    world = World(asr=windowed(delay_s=0.1))

    async def main() -> None:
        transcriber = Transcriber(world.services().engines)
        opened = transcriber.open("default", ENGLISH, priority=DecodePriority.FINAL, eager=True)
        async with opened as recording:
            await spoken(recording, audio((1000, 600), (0, 300), (2000, 600), (0, 600)))
            recording.end()
            assert (await recording.transcript()).text == "one two"

    run_virtual(main())
    name = "earshot_speculation_wasted_seconds:recognition"
    assert world.metrics.labelled[name] == [pytest.approx(0.1, abs=0.01)]


def test_an_outdated_eager_decode_is_cancelled_at_the_end() -> None:
    asr = windowed(delay_s=1)
    pcm = np.concatenate([COMMAND, audio((0, 200), (3000, 80))])

    async def scenario(recording: RecordingTranscription) -> None:
        await spoken(recording, pcm)
        recording.end()
        await asyncio.sleep(0.5)
        assert asr.running == 1  # the final
        assert (await recording.transcript()).text == "one two three"

    with_recording(asr, scenario, priority=DecodePriority.FINAL, eager=True)


def test_an_incremental_engine_is_fed_during_an_eager_command() -> None:
    asr = LevelAsr(0.1, is_incremental=True)

    async def scenario(recording: RecordingTranscription) -> None:
        await spoken(recording, COMMAND)
        recording.end()
        assert (await recording.transcript()).text == "one two"

    with_recording(asr, scenario, priority=DecodePriority.FINAL, eager=True)
    *fed, (_, priority, last) = asr.asked
    lengths = [len(item.pcm) for _, _, item in fed]
    assert len(fed) >= 5
    assert all(b - a >= FEED_MS * MS for a, b in pairwise(lengths))
    assert {item.is_final for _, _, item in fed} == {False}
    assert {item.utterance for _, _, item in asr.asked} == {last.utterance}
    assert (priority, last.is_final, len(last.pcm)) == (DecodePriority.FINAL, True, len(COMMAND))
    assert not asr.forgotten


def test_a_recording_that_becomes_long_is_forgotten_by_an_incremental_engine() -> None:
    asr = LevelAsr(0.1, window_ms=WINDOW_MS, is_incremental=True)
    how = {"priority": DecodePriority.FINAL, "eager": True}
    assert transcript_of(asr, LONG, 20, **how).text == LONG_WORDS
    (fed,) = {item.utterance for _, _, item in asr.asked if not item.is_final}
    assert asr.forgotten == [fed]
    assert fed not in {item.utterance for _, _, item in asr.asked if item.is_final}


def test_an_eager_long_recording_has_the_same_transcript() -> None:
    asr = windowed()
    pcm = np.concatenate([LONG, audio((0, 500))])
    how = {"priority": DecodePriority.FINAL, "eager": True}
    assert transcript_of(asr, pcm, 20, **how) == transcript_of(windowed(), pcm)


@pytest.mark.parametrize("delay_s", [0.05, 2.5])
def test_the_last_segment_of_an_eager_long_recording_uses_the_language_of_the_first(
    delay_s: float,
) -> None:
    asr = windowed(delay_s, languages=("de", "en"))

    async def scenario(recording: RecordingTranscription) -> None:
        await spoken(recording, audio((1000, 8000), (0, 400), (2000, 2000), (0, 300)))
        recording.end()
        first, last = [part async for part in recording.segment_results()]
        assert (first.text, last.text) == ("one", "two")

    with_recording(asr, scenario, options=AsrOptions(), priority=DecodePriority.FINAL, eager=True)
    items = [item for _, _, item in asr.asked if np.abs(item.pcm).max(initial=0) == 2000]
    assert items[-1].options == AsrOptions("en")


def test_a_correct_eager_decode_becomes_urgent_at_the_end() -> None:
    asr = LevelAsr(delay_s=3)
    pcm = np.concatenate([COMMAND, audio((0, 300))])

    async def scenario(recording: RecordingTranscription) -> None:
        await spoken(recording, pcm)
        recording.end()
        assert (await recording.transcript()).text == "one two"

    with_recording(asr, scenario, priority=DecodePriority.FINAL, eager=True)
    guess = asr.asked[-1][2].utterance
    ((at_s, utterance),) = asr.hurried
    assert utterance == guess
    assert at_s == pytest.approx(len(pcm) / MS / 1000)


def test_draining_refuses_new_recordings_and_waits_for_running_ones() -> None:
    async def main() -> None:
        transcriber = Transcriber(World(asr=windowed(delay_s=3)).services().engines)
        async with asyncio.TaskGroup() as tasks:
            async with transcriber.open("default", ENGLISH) as recording:
                draining = tasks.create_task(transcriber.drain())
                await recording.push(audio((1000, 400)))
                recording.end()
                await asyncio.sleep(1)
                with pytest.raises(OverloadedError) as caught:
                    async with transcriber.open("default", ENGLISH):
                        pass
                assert caught.value.code == "draining"
                assert (await recording.transcript()).text == "one"
                assert not draining.done()
            await draining

    assert run_virtual(main()) == pytest.approx(3)


# Checks of the options.


def test_an_unknown_model_is_not_found() -> None:
    transcriber = Transcriber(World().services().engines)
    with pytest.raises(NotFound) as caught:
        transcriber.check("nope", AsrOptions())
    assert (caught.value.code, caught.value.param) == ("model_not_found", "model")


@pytest.mark.parametrize(
    ("options", "code", "param"),
    [
        (AsrOptions("xx"), "unsupported_language", "language"),
        (AsrOptions(languages=("en", "")), "unsupported_language", "languages"),
        (AsrOptions(task="translate"), "unsupported_parameter", "task"),
        (AsrOptions(prefix="<|en|>"), "unsupported_parameter", "prefix"),
        (AsrOptions(timestamps="word"), "unsupported_parameter", "timestamps"),
        (AsrOptions(token_logprobs=True), "unsupported_parameter", "token_logprobs"),
        (AsrOptions(beam_size=0), "invalid_value", "beam_size"),
        (AsrOptions(beam_size=11), "invalid_value", "beam_size"),
        (AsrOptions(temperatures=(0, -0.1)), "invalid_value", "temperature"),
        (AsrOptions(temperatures=(1.1,)), "invalid_value", "temperature"),
        (AsrOptions(temperatures=(float("nan"),)), "invalid_value", "temperature"),
        (AsrOptions(temperatures=(0,) * 7), "invalid_value", "temperature"),
        (AsrOptions(no_speech_threshold=1.5), "invalid_value", "no_speech_threshold"),
        (AsrOptions(prompt="x" * 4001), "invalid_value", "prompt"),
        (AsrOptions(hotwords="x" * 4001), "invalid_value", "hotwords"),
    ],
)
def test_an_invalid_option_is_refused_by_name(options: AsrOptions, code: str, param: str) -> None:
    transcriber = Transcriber(World().services().engines)
    with pytest.raises(RequestError) as caught:
        transcriber.check("default", options)
    assert (caught.value.code, caught.value.param) == (code, param)


def test_hints_and_supported_options_are_accepted() -> None:
    hints = AsrOptions(
        "en", prompt="Earshot", hotwords="Willow", beam_size=10, temperatures=(0, 1), padding="max"
    )
    Transcriber(World().services().engines).check("default", hints)
    able = LevelAsr(supports=("task", "prefix", "timestamps", "token_logprobs"))
    transcriber = Transcriber(World(asr=able).services().engines)
    everything = AsrOptions(task="translate", timestamps="word", token_logprobs=True)
    transcriber.check("default", everything)
    transcriber.check("default", AsrOptions("xx", prefix="<|startoftranscript|><|en|>"))
