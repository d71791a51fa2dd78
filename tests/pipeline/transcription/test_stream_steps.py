"""The transcript stream of a streaming model, which decodes in steps: when partials are asked for,
and which of them has all words of the user. In virtual time, so without the time of computing."""

import asyncio
from dataclasses import replace

import numpy as np
import pytest

from engines.base import AsrItem, AsrOptions, AsrResult
from engines.base.decode_steps import DecodeSteps
from pipeline.transcription.partials import PartialHypothesis
from pipeline.transcription.segmenter import LEAD_MS
from pipeline.transcription.stream import TranscriptStream
from serving.asr.scheduling import DecodePriority
from tests.loop import run_virtual
from tests.pipeline.fakes import FRAME, LevelAsr, LoopClock

FRAME_MS = 20
SPEECH = ((0, 300), (1000, 900), (2000, 400))
"Silence, then `one`, then `two`; level and ms."
SPEECH_END_MS = 1600
STEPS, LAG_MS = DecodeSteps(first_ms=468, every_ms=320), 208.0


class SteppedAsr(LevelAsr):
    """Reads words from levels as a streaming model: at the end of a step, all but the newest audio;
    in a final result, everything."""

    def __init__(self, steps: DecodeSteps = STEPS, lag_ms: float = LAG_MS) -> None:
        super().__init__(0.0, is_incremental=True)
        self.info = replace(self.info, steps=steps, lag_ms=lag_ms)

    async def decode(self, item: AsrItem, priority: DecodePriority) -> AsrResult:
        if item.is_final:
            return await super().decode(item, priority)
        assert self.info.steps is not None
        known_ms = self.info.steps.decoded_ms(len(item.pcm) / 16) - self.info.lag_ms
        result = await super().decode(item, priority)
        text = " ".join(word.text for word in result.words if word.end_ms <= known_ms)
        return AsrResult(text, 0.9, "en")

    @property
    def partials_ms(self) -> list[int]:
        """Length of the audio of each partial."""
        return [
            len(item.pcm) // 16
            for _, priority, item in self.asked
            if priority is DecodePriority.PARTIAL
        ]


class Talk:
    """An utterance spoken in real time. `told`: (ms, words) of each partial; `whole`: the same of
    each result of which the stream says that it has all words."""

    def __init__(self, asr: LevelAsr, before_speech: int | None = None) -> None:
        self.asr, self.before_speech = asr, before_speech
        self.told: list[tuple[int, str]] = []
        self.whole: list[tuple[int, str]] = []
        self.final, self.final_ms = "", 0
        run_virtual(self._run())

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            stream = TranscriptStream(
                self.asr,
                "item",
                AsrOptions("en"),
                LoopClock(),
                tasks,
                before_speech=self.before_speech,
            )
            stream.follow(self._tell, self._fail)
            for level, ms in (*SPEECH, (0, 200)):
                await self._hear(stream, level, ms)
            stream.prepare(SPEECH_END_MS * 16, self._tell_whole)
            await self._hear(stream, 0, 600)
            began_ms = _now_ms()
            self.final = (await stream.finish()).text
            self.final_ms = _now_ms() - began_ms
            stream.discard()

    async def _hear(self, stream: TranscriptStream, level: int, ms: int) -> None:
        for _ in range(ms // FRAME_MS):
            await asyncio.sleep(FRAME_MS / 1000)
            stream.push(np.full(FRAME, level, np.int16))

    def _tell(self, words: PartialHypothesis, _: int) -> None:
        self.told.append((_now_ms(), f"{words.stable}{words.unstable}".strip()))

    def _fail(self, error: Exception) -> None:
        raise error

    def _tell_whole(self, result: AsrResult) -> None:
        self.whole.append((_now_ms(), result.text))


def _now_ms() -> int:
    return round(1000 * asyncio.get_running_loop().time())


def next_step_ms(word_end_ms: float, steps: DecodeSteps, lag_ms: float) -> float:
    """Returns when the first step is complete that has a word."""
    step_ms = steps.first_ms
    while step_ms - lag_ms < word_end_ms:
        step_ms += steps.every_ms
    return step_ms


def test_a_partial_is_asked_for_when_a_step_is_complete() -> None:
    asr = SteppedAsr()
    Talk(asr)
    edges = [STEPS.first_ms + number * STEPS.every_ms for number in range(6)]
    assert asr.partials_ms == [-(-edge // FRAME_MS) * FRAME_MS for edge in edges]


@pytest.mark.parametrize(
    ("steps", "lag_ms"),
    [
        (STEPS, LAG_MS),
        (DecodeSteps(668, 560), 208.0),
        (DecodeSteps(178, 80), 100.0),
        (DecodeSteps(1318, 1120), 100.0),
    ],
)
def test_words_are_told_as_soon_as_their_step_is_complete(
    steps: DecodeSteps, lag_ms: float
) -> None:
    """Within one frame, which is how the audio arrives; the target is 60 ms."""
    talk = Talk(SteppedAsr(steps, lag_ms))
    first_ms, first = talk.told[0]
    assert first == "one"
    assert 0 <= first_ms - next_step_ms(1200, steps, lag_ms) <= FRAME_MS
    assert (talk.final, talk.final_ms) == ("one two", 0)


def test_a_partial_without_the_last_word_is_not_taken_for_the_whole() -> None:
    """The partial that covers the speech lacks its last word; the one a step later has it."""
    talk = Talk(SteppedAsr())
    expected_ms = next_step_ms(SPEECH_END_MS, STEPS, LAG_MS)
    assert any(ms >= SPEECH_END_MS and words == "one" for ms, words in talk.told)
    ((ms, words),) = talk.whole
    assert words == "one two"
    assert 0 <= ms - expected_ms <= FRAME_MS


def test_silence_before_the_audio_counts_as_decoded() -> None:
    """The recogniser gets silence in place of missing audio, so its steps come earlier."""
    asr = SteppedAsr()
    talk = Talk(asr, before_speech=0)
    edges = [STEPS.first_ms + number * STEPS.every_ms for number in range(7)]
    assert asr.partials_ms == [-(-edge // FRAME_MS) * FRAME_MS for edge in edges]
    first_ms, _ = talk.told[0]
    assert 0 <= first_ms - next_step_ms(LEAD_MS + 1200, STEPS, LAG_MS) + LEAD_MS <= FRAME_MS
    ((_, words),) = talk.whole
    assert words == "one two"


def test_a_model_without_steps_or_lag_is_asked_as_before() -> None:
    """PocketSphinx's first partial that covers the speech is taken for the whole."""
    talk = Talk(LevelAsr(0.0, is_incremental=True))
    ((ms, words),) = talk.whole
    assert words == "one two"
    assert ms - 1800 <= 200


@pytest.mark.parametrize(
    ("audio_ms", "decoded_ms"),
    [(0, 0), (467, 0), (468, 468), (787, 468), (788, 788), (10_000, 9748)],
)
def test_audio_is_decoded_in_whole_steps(audio_ms: float, decoded_ms: float) -> None:
    assert STEPS.decoded_ms(audio_ms) == decoded_ms
