"""The transcript stream of one utterance: segments, early finals and partials under load, in
virtual time."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from core.conversation.events import HypothesisChanged, TranscriptionCompleted
from core.errors import EarshotError, EngineError
from engines.base import AsrItem, AsrOptions, AsrPadding, AsrResult
from pipeline.session.session import Session
from pipeline.shared.settings import SessionSettings
from pipeline.transcription.partials import MAX_BACKOFF_S, SHARE, PartialHypothesis
from pipeline.transcription.stream import TranscriptStream, ends_segment
from pipeline.user_turn.speech_detection.endpointing import CANDIDATE_MS
from serving.asr.scheduling import DecodePriority
from tests.loop import run_virtual
from tests.pipeline.fakes import FRAME, LevelAsr, LoopClock, World, speak
from tests.pipeline.scenes import SILENCE, of, run_session

pytestmark = pytest.mark.many

WINDOW_MS = 10_000
PUSH_TO_TALK = SessionSettings(turn_detection=None)
ENGLISH = AsrOptions("en")


class Talk:
    """An utterance that is spoken frame by frame in real time, with the edges of a VAD."""

    def __init__(
        self,
        asr: LevelAsr,
        tasks: asyncio.TaskGroup,
        options: AsrOptions = ENGLISH,
        before_speech: int | None = None,
    ) -> None:
        self.utterance = TranscriptStream(
            asr, "item", options, LoopClock(), tasks, before_speech=before_speech
        )
        self.told: list[tuple[float, PartialHypothesis, int]] = []
        self.errors: list[EarshotError] = []
        self.samples = self._speech_end = 0
        self._is_paused = False
        self.utterance.follow(self._tell, self.errors.append)

    async def say(self, *script: tuple[int, int]) -> None:
        """Speaks runs of (level, ms)."""
        for level, ms in script:
            for _ in range(ms // 20):
                await asyncio.sleep(0.02)
                self._hear(level)

    @property
    def stables(self) -> list[str]:
        return [agreed.stable for _, agreed, _ in self.told]

    def _hear(self, level: int) -> None:
        self.utterance.push(np.full(FRAME, level, np.int16))
        self.samples += FRAME
        if level:
            if self._is_paused:
                self.utterance.resume()
            self._is_paused, self._speech_end = False, self.samples
        elif not self._is_paused and self.samples - self._speech_end >= CANDIDATE_MS * 16:
            self._is_paused = True
            self.utterance.prepare(self._speech_end)

    def _tell(self, agreed: PartialHypothesis, audio_ms: int) -> None:
        self.told.append((asyncio.get_running_loop().time(), agreed, audio_ms))


def talk(
    asr: LevelAsr,
    scenario: Callable[[Talk], Awaitable[None]],
    options: AsrOptions = ENGLISH,
    before_speech: int | None = None,
) -> Talk:
    talks: list[Talk] = []

    async def main() -> None:
        async with asyncio.TaskGroup() as tasks:
            talks.append(Talk(asr, tasks, options, before_speech))
            await scenario(talks[0])
            talks[0].utterance.discard()

    run_virtual(main())
    return talks[0]


def said(asr: LevelAsr, *script: tuple[int, int]) -> tuple[AsrResult, float, Talk]:
    """Returns the final result, the seconds it took after the last sample, and the talk."""
    out: list[tuple[AsrResult, float]] = []

    async def scenario(talk: Talk) -> None:
        await talk.say(*script)
        ended = asyncio.get_running_loop().time()
        result = await talk.utterance.finish()
        out.append((result, asyncio.get_running_loop().time() - ended))

    talked = talk(asr, scenario)
    return *out[0], talked


def asked(asr: LevelAsr, *priorities: DecodePriority) -> Sequence[float]:
    return [at for at, priority, _ in asr.asked if priority in priorities]


# The final.


def test_the_final_is_ready_if_its_decode_fits_the_pause() -> None:
    asr = LevelAsr(delay_s=0.3)
    result, took_s, _ = said(asr, (1000, 900), (SILENCE, 400))
    assert (result.text, took_s) == ("one", 0)
    assert not asked(asr, DecodePriority.FINAL)


def test_a_partial_that_covers_all_speech_is_the_final() -> None:
    """Partials come every 200 ms from 700 ms on, so one covers exactly these 900 ms."""
    asr = LevelAsr(delay_s=0.01)

    async def scenario(talk: Talk) -> None:
        await talk.say((1000, 900), (SILENCE, CANDIDATE_MS))
        before = asyncio.get_running_loop().time()
        assert (await talk.utterance.finish()).text == "one"
        assert asyncio.get_running_loop().time() == before
        assert asr.forgotten == ["item"]  # no final item frees what engines keep for it

    talk(asr, scenario)
    assert not asked(asr, DecodePriority.FINAL, DecodePriority.SPECULATIVE)
    partial = next(item for _, _, item in reversed(asr.asked))
    assert len(partial.pcm) == 900 * 16


@pytest.mark.parametrize(
    ("asr", "options", "speech_ms"),
    [
        (LevelAsr(0.01), ENGLISH, 960),  # the newest partial misses the last 60 ms
        (LevelAsr(0.01), AsrOptions("en", beam_size=5), 900),  # partials have no beam
        (LevelAsr(0.01), AsrOptions("en", temperatures=(0.0, 0.4)), 900),
        (LevelAsr(0.01), AsrOptions("en", token_logprobs=True), 900),
    ],
)
def test_a_partial_that_differs_from_the_final_is_not_used_for_it(
    asr: LevelAsr, options: AsrOptions, speech_ms: int
) -> None:
    async def scenario(talk: Talk) -> None:
        await talk.say((1000, speech_ms), (SILENCE, 200))
        assert (await talk.utterance.finish()).text == "one"

    talk(asr, scenario, options)
    finals = [item for _, priority, item in asr.asked if priority is DecodePriority.SPECULATIVE]
    assert [item.options for item in finals] == [options]


class DoubtfulPartials(LevelAsr):
    """A recogniser that doubts each partial, which it decodes in a short window."""

    async def decode(self, item: AsrItem, priority: DecodePriority) -> AsrResult:
        result = await super().decode(item, priority)
        return result if item.is_final else replace(result, short_windows=("unsure",))


def test_a_doubtful_partial_is_not_the_final() -> None:
    asr = DoubtfulPartials(0.01)

    async def scenario(talk: Talk) -> None:
        await talk.say((1000, 900), (SILENCE, CANDIDATE_MS))
        assert (await talk.utterance.finish()).text == "one"

    talk(asr, scenario)
    assert len(asked(asr, DecodePriority.SPECULATIVE)) == 1


def test_an_incremental_engine_decodes_a_final() -> None:
    asr = LevelAsr(0.01, is_incremental=True)
    result, _, _ = said(asr, (1000, 900), (SILENCE, 400))
    assert result.text == "one"
    assert len(asked(asr, DecodePriority.FINAL)) == 1
    assert not asked(asr, DecodePriority.SPECULATIVE)


def test_a_refused_speculative_decode_is_repeated_as_the_final() -> None:
    asr = LevelAsr(delay_s=0.1)
    asr.refuses = frozenset({DecodePriority.SPECULATIVE, DecodePriority.PARTIAL})
    result, took_s, talked = said(asr, (1000, 900), (SILENCE, 400))
    assert (result.text, talked.errors) == ("one", [])
    assert took_s == pytest.approx(0.1)


def test_a_failed_final_raises() -> None:
    asr = LevelAsr()
    asr.broken = True

    async def scenario(talk: Talk) -> None:
        await talk.say((1000, 900), (SILENCE, 200))
        with pytest.raises(EngineError, match="broken on purpose"):
            await talk.utterance.finish()

    talk(asr, scenario)


def test_nothing_is_decoded_twice_in_a_pause() -> None:
    asr = LevelAsr(0.01)
    said(asr, (1000, 960), (SILENCE, 2000))
    assert max(at for at, _, _ in asr.asked) <= 0.96 + CANDIDATE_MS / 1000 + 0.001


def test_the_last_words_appear_in_the_pause() -> None:
    talked = said(LevelAsr(0.05), (1000, 800), (2000, 160), (SILENCE, 1000))[2]
    at_s, agreed, audio_ms = talked.told[-1]
    assert (agreed.stable + " " + agreed.unstable).strip() == "one two"
    assert at_s < 1.4
    assert audio_ms == 960 + CANDIDATE_MS


# Partials.


@pytest.mark.parametrize("delay_s", [0.02, 0.1, 0.4, 1.0])
def test_partials_take_at_most_their_share(delay_s: float) -> None:
    asr = LevelAsr(delay_s)
    said(asr, (1000, 12_000))
    times = asked(asr, DecodePriority.PARTIAL)
    spacings = [b - a for a, b in pairwise(times)]
    assert all(spacing >= delay_s / SHARE - 1e-6 for spacing in spacings)
    assert max(spacings) <= max(0.2, delay_s / SHARE) + 0.021
    assert asr.most_running == 1


@pytest.mark.parametrize(("lead_ms", "first_ms"), [(300, 580), (100, 380), (600, 700)])
def test_the_first_partial_needs_little_speech(lead_ms: int, first_ms: int) -> None:
    asr = LevelAsr(0.1)

    async def scenario(talk: Talk) -> None:
        await talk.say((SILENCE, lead_ms), (1000, 600))

    talk(asr, scenario, before_speech=lead_ms * 16)
    assert asked(asr, DecodePriority.PARTIAL)[0] == pytest.approx(first_ms / 1000)


class LateWords(LevelAsr):
    """A recogniser that finds no words in less than 800 ms of audio."""

    async def decode(self, item: AsrItem, priority: DecodePriority) -> AsrResult:
        result = await super().decode(item, priority)
        return result if len(item.pcm) >= 800 * 16 else AsrResult("", 0.0, "en")


def test_a_partial_without_words_is_followed_as_soon_as_it_returns() -> None:
    asr = LateWords(0.15)
    said(asr, (1000, 1600))
    times = asked(asr, DecodePriority.PARTIAL)
    assert times[:2] == pytest.approx([0.7, 0.85], abs=0.02)
    assert times[2] - times[1] == pytest.approx(0.15 / SHARE, abs=0.02), "the second had words"


def test_refused_partials_become_rare_and_return() -> None:
    asr = LevelAsr(0.02)

    async def scenario(talk: Talk) -> None:
        await talk.say((1000, 2000))
        asr.refuses = frozenset({DecodePriority.PARTIAL})
        await talk.say((1000, 20_000))
        asr.refuses = frozenset()
        await talk.say((1000, 10_000))

    talk(asr, scenario)
    times = asked(asr, DecodePriority.PARTIAL)
    refused = [at for at in times if 2 < at < 22]
    assert len(refused) <= 9
    assert max(b - a for a, b in pairwise(times)) <= MAX_BACKOFF_S + 0.03
    late = [b - a for a, b in pairwise(at for at in times if at > 30)]
    assert max(late) <= 0.23


# Longer than the window.

SPEECH = [
    *((1000, 2000), (SILENCE, 500), (2000, 5000), (SILENCE, 300), (3000, 4000), (SILENCE, 240)),
    *((4000, 1000), (SILENCE, 5000), (1000, 2000), (SILENCE, 400), (2000, 7000), (SILENCE, 60)),
    *((3000, 3000), (SILENCE, 100), (4000, 2000)),
]
WORDS = "one two three four one two three four"


def windowed(delay_s: float = 0.05, **how: object) -> LevelAsr:
    return LevelAsr(delay_s, window_ms=WINDOW_MS, **how)  # type: ignore[arg-type]


def test_an_utterance_beyond_the_window_keeps_every_word_in_order_and_in_time() -> None:
    asr = windowed()
    result, took_s, talked = said(asr, *SPEECH)
    assert result.text == WORDS
    assert took_s == pytest.approx(0.05)
    starts, at_ms = [], 0
    for level, ms in SPEECH:
        starts += [at_ms] if level else []
        at_ms += ms
    assert [word.start_ms for word in result.words] == pytest.approx(starts, abs=20)
    assert all(a.end_ms <= b.start_ms for a, b in pairwise(result.words))
    assert all(a.end_ms <= b.start_ms for a, b in pairwise(result.segments))
    assert talked.utterance.audio_ms == at_ms
    assert all(after.startswith(before) for before, after in pairwise(talked.stables))
    assert WORDS.startswith(talked.stables[-1])
    assert len(talked.stables[-1].split()) >= 6


def test_a_segment_is_decoded_once_and_its_words_stay_in_the_partials() -> None:
    asr = windowed()
    _, _, talked = said(asr, *SPEECH)
    finals = [(item.utterance, priority) for _, priority, item in asr.asked if item.is_final]
    done = [utterance for utterance, _ in finals]
    last = finals[-1]
    assert last == (done[-1], DecodePriority.FINAL)
    shown = [f"{agreed.stable} {agreed.unstable}".split() for _, agreed, _ in talked.told]
    assert all(len(after) >= len(before) - 1 for before, after in pairwise(shown))
    # No audio of an earlier segment is in a later one.
    parts = {item.utterance: item for _, _, item in asr.asked if item.is_final}
    assert len(parts) == 4
    assert sum(len(item.pcm) for item in parts.values()) <= talked.samples


def test_speech_without_a_pause_is_cut_where_it_is_quietest() -> None:
    asr = windowed()
    script = [(3000, 8000), (600, 240), (3000, 9000)]  # 600 is loud for the VAD, and no word
    result, _, _ = said(asr, *script)
    assert result.text == "three three"
    assert max(len(item.pcm) for _, _, item in asr.asked) <= WINDOW_MS * 16


@pytest.mark.parametrize(("window_ms", "delay_s"), [(9920, 0.01), (9900, 0.03)])
def test_a_partial_from_before_a_cut_is_not_the_final_after_it(
    window_ms: int, delay_s: float
) -> None:
    """The partial ends in the 60 ms before the pause is known, and so does the window; its result
    comes before the cut or after it."""
    asr = LevelAsr(delay_s, window_ms=window_ms)
    script = [(1000, 7500), (300, 400), (2000, 1980), (SILENCE, 400)]
    assert said(asr, *script)[0].text == "one two"
    partials = [
        len(item.pcm) for _, priority, item in asr.asked if priority is DecodePriority.PARTIAL
    ]
    assert 9900 * 16 in partials


def test_speech_that_resumes_at_the_end_of_the_window_is_kept() -> None:
    script = [(1000, 9900), (SILENCE, 120), (2000, 20)]
    assert said(windowed(), *script)[0].text == "one two"


def test_an_incremental_engine_is_cut_in_pauses_too() -> None:
    asr = windowed(is_incremental=True)
    script = [(1000, 7500), (SILENCE, 100), (2000, 600), (300, 600), (2000, 3000)]  # 300: no pause
    assert said(asr, *script)[0].text == "one two two"
    first = next(item for _, _, item in asr.asked if item.is_final)
    assert 7500 * 16 < len(first.pcm) < 7600 * 16


def test_a_long_pause_causes_no_decodes() -> None:
    asr = windowed()
    result, took_s, _ = said(asr, (1000, 2000), (SILENCE, 60_000))
    assert (result.text, took_s) == ("one", 0)
    assert all(at < 2.5 for at, _, _ in asr.asked)
    result, _, _ = said(windowed(), (1000, 2000), (SILENCE, 60_000), (2000, 2000))
    assert result.text == "one two"
    assert result.words[1].start_ms == pytest.approx(62_000, abs=20)


def test_refused_segments_are_decoded_at_the_end() -> None:
    asr = windowed()
    asr.refuses = frozenset({DecodePriority.SPECULATIVE, DecodePriority.PARTIAL})
    result, took_s, talked = said(asr, *SPEECH)
    assert result.text == WORDS
    assert took_s == pytest.approx(0.05)  # in parallel
    assert talked.told == []


def test_all_segments_become_urgent_at_the_end() -> None:
    asr = LevelAsr(delay_s=10, window_ms=WINDOW_MS)
    script = [(1000, 2000), (SILENCE, 4000), (2000, 2000), (SILENCE, 100)]

    async def scenario(talk: Talk) -> None:
        await talk.say(*script)
        await talk.utterance.finish()

    talk(asr, scenario)
    at_once = {name for at, name in asr.hurried if at <= sum(ms for _, ms in script) / 1000 + 0.01}
    assert at_once == {"item", "item.1"}


def test_a_failed_segment_fails_the_utterance_and_discard_stops_the_others() -> None:
    class Half(LevelAsr):
        async def decode(self, item: AsrItem, priority: DecodePriority) -> AsrResult:
            if item.utterance == "item" and item.is_final:
                raise EngineError("asr", "half", "broken on purpose")
            return await super().decode(item, priority)

    asr = Half(delay_s=30, window_ms=WINDOW_MS)

    async def scenario(talk: Talk) -> None:
        await talk.say((1000, 2000), (SILENCE, 4000), (2000, 900))
        with pytest.raises(EngineError):
            await talk.utterance.finish()
        assert asr.running == 1
        talk.utterance.discard()
        await asyncio.sleep(0.01)
        assert asr.running == 0

    talk(asr, scenario)


def test_a_segment_that_keeps_failing_is_retried_less_and_less_often() -> None:
    class Poisoned(LevelAsr):
        async def decode(self, item: AsrItem, priority: DecodePriority) -> AsrResult:
            result = await super().decode(item, priority)
            if item.utterance == "item" and item.is_final:
                raise EngineError("asr", "poisoned", "broken on purpose")
            return result

    asr = Poisoned(window_ms=WINDOW_MS)

    async def scenario(talk: Talk) -> None:
        await talk.say((1000, 2000), (SILENCE, 4000), (2000, 9000))

    talked = talk(asr, scenario)
    tries = [item for _, _, item in asr.asked if item.utterance == "item" and item.is_final]
    assert 2 <= len(tries) <= 7
    assert {type(error) for error in talked.errors} == {EngineError}


def test_the_first_words_decide_the_language_of_the_rest() -> None:
    asr = windowed(languages=("de", "en"))

    async def scenario(talk: Talk) -> None:
        await talk.say((1000, 2000), (SILENCE, 4000), (2000, 2000))
        assert (await talk.utterance.finish()).language == "en"

    talk(asr, scenario, AsrOptions())
    late = {item.options.language for at, _, item in asr.asked if at > 6.1}
    assert late == {"en"}
    assert {item.options.language for at, _, item in asr.asked if at < 5} == {None}


def test_a_discarded_utterance_is_forgotten() -> None:
    asr = windowed(delay_s=30)

    async def scenario(talk: Talk) -> None:
        await talk.say((1000, 2000), (SILENCE, 4000), (2000, 2000))

    talk(asr, scenario)
    assert asr.forgotten == ["item", "item.1"]
    assert asr.running == 0


@pytest.mark.parametrize(
    ("pause_ms", "segment_ms", "is_end"),
    [
        (100, 9000, False),
        (200, 4999, False),
        (200, 5000, True),
        (2999, 100, False),
        (3000, 1, True),
    ],
)
def test_where_a_segment_ends(pause_ms: float, segment_ms: float, is_end: bool) -> None:
    assert ends_segment(pause_ms, segment_ms, WINDOW_MS) is is_end


@pytest.mark.many
@pytest.mark.parametrize("seed", range(25))
def test_no_word_is_lost_or_repeated(seed: int) -> None:
    dice = random.Random(seed)
    asr = windowed(dice.choice([0.01, 0.2, 1.5]))
    asr.refuses = frozenset(
        dice.sample([DecodePriority.SPECULATIVE, DecodePriority.PARTIAL], seed % 3)
    )
    script: list[tuple[int, int]] = []
    for number in range(dice.randint(5, 25)):
        pause_ms = dice.choice([80, 160, 300, 900, 3200, 14_000])
        script += [(1000 + number % 4 * 1000, 20 * dice.randint(4, 90)), (SILENCE, pause_ms)]
    result, _, talked = said(asr, *script[: dice.choice([-1, None])])
    names = ["one", "two", "three", "four"]
    assert result.text.split() == [names[n % 4] for n in range(len(script) // 2)]
    assert all(a.end_ms <= b.start_ms for a, b in pairwise(result.words))
    assert all(after.startswith(before) for before, after in pairwise(talked.stables))


# In a session.


def test_push_to_talk_beyond_the_window() -> None:
    world = World(asr=windowed())

    async def scenario(session: Session) -> None:
        await speak(session, (SILENCE, 200), *SPEECH, (SILENCE, 300))
        session.commit_input()
        await speak(session, (SILENCE, 100))

    events = run_session(world, scenario, PUSH_TO_TALK)
    assert [event.transcript for event in of(TranscriptionCompleted, events)] == [WORDS]
    stables = [event.stable for event in of(HypothesisChanged, events)]
    assert all(after.startswith(before) for before, after in pairwise(stables))


@pytest.mark.parametrize(("wanted", "instead"), [(None, None), ("max", None), ("nopad", "longest")])
def test_a_session_reports_its_fallback_padding(
    wanted: AsrPadding | None, instead: AsrPadding | None
) -> None:
    world = World()
    world.asr.info = replace(world.asr.info, paddings=("max", "longest"))
    told: list[AsrPadding | None] = []

    async def scenario(session: Session) -> None:
        session.configure(SessionSettings(padding=wanted))
        told.append(session.fallback_padding)

    run_session(world, scenario)
    assert told == [instead]


def test_a_session_decodes_with_the_options_of_its_settings() -> None:
    world = World(asr=LevelAsr(languages=("de", "en"), supports=("task", "token_logprobs")))
    settings = SessionSettings(
        languages=("de", "en"),
        prompt="Earshot",
        keywords=("Willow", "Mimi"),
        task="translate",
        beam_size=5,
        temperature=0.2,
        padding="bucket",
        no_speech_threshold=0.5,
        logprobs=True,
    )

    async def scenario(session: Session) -> None:
        await speak(session, (1000, 900), (SILENCE, 1000))

    run_session(world, scenario, settings)
    finals = {item.options for _, _, item in world.asr.asked if item.is_final}
    assert finals == {
        AsrOptions(
            languages=("de", "en"),
            task="translate",
            prompt="Earshot",
            hotwords="Willow, Mimi",
            beam_size=5,
            temperatures=(0.2,),
            padding="bucket",
            no_speech_threshold=0.5,
            token_logprobs=True,
        )
    }
