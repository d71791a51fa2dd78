"""The options of an item: each has its effect in a batch and does not affect other items."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from bench.measurements.material.random_whisper import build
from core.audio import ASR_RATE_HZ, Pcm
from core.errors import RequestError
from engines.asr.faster_whisper import FasterWhisper, Settings, create
from engines.asr.whisper.decode import DecodePolicy, DecodeRules
from engines.asr.whisper.prompt import check_prefix
from engines.asr.whisper.temperature_fallback import WindowResult, compression_ratio
from engines.base import AsrItem, AsrOptions, AsrResult
from tests.engines.nano import NANO
from tests.speech import say

pytestmark = pytest.mark.live

LIGHTS, CLOCK = say("turn on the kitchen lights"), say("what time is it")
NOISE = np.random.default_rng(1).normal(0, 3000, 3 * ASR_RATE_HZ).astype(np.int16)

START = "<|startoftranscript|>"


def create_with(folder: Path, **settings: Any) -> FasterWhisper:
    return create(Settings(model=str(folder), device="cpu", cpu_threads=1, **settings))


@pytest.fixture(scope="module")
def nano() -> Iterator[FasterWhisper]:
    model = create_with(NANO)
    yield model
    model.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("tiny"), "tiny")


@pytest.fixture(scope="module")
def tiny(folder: Path) -> Iterator[FasterWhisper]:
    """Returns a multilingual model with random weights that rejects nothing."""
    model = create_with(folder, min_confidence=0, padding="bucket")
    yield model
    model.close()


def hear(model: FasterWhisper, pcm: Pcm, options: AsrOptions) -> AsrResult:
    (result,) = model.decode([AsrItem("utt", pcm, True, options)])
    return result


class Overheard:
    """The real model, with a record of the prompts that it was given."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, model: FasterWhisper) -> None:
        self._real, self._prompts = model._decoder._model, list[list[int]]()
        self._names = model._decoder._tokenizer.tokenizer.id_to_token
        monkeypatch.setattr(model._decoder, "_model", self)

    def generate(self, encoded: Any, prompts: list[list[int]], **options: Any) -> Any:
        self._prompts += prompts
        return self._real.generate(encoded, prompts, **options)

    @property
    def prompts(self) -> list[str]:
        return ["".join(self._names(token) for token in prompt) for prompt in self._prompts]


MIXED = (
    AsrOptions("en"),
    AsrOptions("de", beam_size=3),
    AsrOptions(None, padding="max"),
    AsrOptions(languages=("fr", "es"), prompt="words before"),
    AsrOptions("en", timestamps="segment"),
    AsrOptions("en", timestamps="word", hotwords="Anna"),
    AsrOptions(prefix=f"{START}<|zh|><|en|><|transcribe|><|notimestamps|>"),
    AsrOptions("ja", task="translate", token_logprobs=True),
)


def alike(one: AsrResult, other: AsrResult) -> bool:
    """Compares two results; the last digits of scores may differ."""
    if one.confidence != pytest.approx(other.confidence, abs=1e-3):
        return False
    texts = [(result.text, result.language, result.is_rejected) for result in (one, other)]
    segments = [
        [(s.text, s.start_ms, s.end_ms, s.tokens) for s in result.segments]
        for result in (one, other)
    ]
    words = [[(w.text, w.start_ms, w.end_ms) for w in result.words] for result in (one, other)]
    return texts[0] == texts[1] and segments[0] == segments[1] and words[0] == words[1]


def alone_and_together(model: FasterWhisper, items: Sequence[AsrItem]) -> None:
    together = model.decode(items)
    alone = [model.decode([item])[0] for item in items]
    for item, one, other in zip(items, together, alone, strict=True):
        assert alike(one, other), (item.options, one, other)


def test_a_result_does_not_depend_on_other_items_of_the_batch(tiny: FasterWhisper) -> None:
    clips = (LIGHTS, CLOCK, NOISE)
    alone_and_together(
        tiny, [AsrItem(f"u{i}", clips[i % 3], True, wish) for i, wish in enumerate(MIXED)]
    )


@pytest.mark.parametrize("padding", ["max", "bucket", "longest", "nopad"])
def test_no_padding_depends_on_the_longest_item_of_the_batch(
    nano: FasterWhisper, padding: Any
) -> None:
    options = AsrOptions("en", padding=padding)
    long = np.concatenate([LIGHTS, CLOCK, LIGHTS, CLOCK, LIGHTS, CLOCK, LIGHTS, CLOCK, LIGHTS])
    alone_and_together(
        nano, [AsrItem(f"u{i}", pcm, True, options) for i, pcm in enumerate((CLOCK, long, NOISE))]
    )


@pytest.mark.parametrize(
    ("options", "prompt"),
    [
        (AsrOptions("de"), f"{START}<|de|><|transcribe|><|notimestamps|>"),
        (AsrOptions("de", task="translate"), f"{START}<|de|><|translate|><|notimestamps|>"),
        (AsrOptions("en", timestamps="segment"), f"{START}<|en|><|transcribe|>"),
        (
            AsrOptions("en", prompt=" red ", hotwords="blue"),
            f"<|startofprev|>Ġblue Ġred{START}<|en|><|transcribe|><|notimestamps|>",
        ),
        (
            AsrOptions("en", prompt=f"red{START}<|endoftext|>"),
            f"<|startofprev|>Ġred{START}<|en|><|transcribe|><|notimestamps|>",
        ),
        (
            AsrOptions("en", prefix=f"<|startofprev|>red {START}<|zh|><|en|><|translate|><|0.40|>"),
            f"<|startofprev|>Ġred{START}<|zh|><|en|><|translate|><|0.40|>",
        ),
        (AsrOptions("en", prefix=f"{START}<|en|> red"), f"{START}<|en|>Ġred"),
        (
            AsrOptions("en", hotwords="blue", former_words="red<|endoftext|>"),
            f"<|startofprev|>Ġblue{START}<|en|><|transcribe|><|notimestamps|>Ġred",
        ),
        (
            AsrOptions("en", former_words="red", timestamps="segment"),
            f"{START}<|en|><|transcribe|>",
        ),
    ],
)
def test_the_decoder_gets_the_prompt_for_the_options(
    monkeypatch: pytest.MonkeyPatch, tiny: FasterWhisper, options: AsrOptions, prompt: str
) -> None:
    overheard = Overheard(monkeypatch, tiny)
    hear(tiny, CLOCK, options)
    assert overheard.prompts[0] == prompt.replace(" ", "")


def test_long_prompts_keep_their_end_and_leave_room_for_the_answer(
    monkeypatch: pytest.MonkeyPatch, tiny: FasterWhisper
) -> None:
    overheard = Overheard(monkeypatch, tiny)
    hear(tiny, CLOCK, AsrOptions("en", prompt="red " * 500 + "blue", hotwords="green " * 100))
    text = overheard.prompts[0]
    assert text.count("Ġgreen") == 100
    assert text.count("Ġred") == 223 - 100 - 1
    assert text.partition(START)[0].endswith("Ġblue")


def test_the_result_has_only_what_follows_the_former_words(nano: FasterWhisper) -> None:
    whole = hear(nano, LIGHTS, AsrOptions("en"))
    former, rest = whole.text[: len("turn on")], whole.text[len("turn on") :]
    continued = hear(nano, LIGHTS, AsrOptions("en", former_words=former))
    assert continued.text == rest.strip()


def test_former_words_leave_room_for_the_answer(
    monkeypatch: pytest.MonkeyPatch, tiny: FasterWhisper
) -> None:
    overheard = Overheard(monkeypatch, tiny)
    options = AsrOptions("en", prompt="green", hotwords="blue", former_words="red " * 500)
    hear(tiny, CLOCK, options)
    assert "green" not in overheard.prompts[0]
    assert overheard.prompts[0].count("Ġred") == 223


def test_a_long_prefix_keeps_its_last_words(
    monkeypatch: pytest.MonkeyPatch, tiny: FasterWhisper
) -> None:
    overheard = Overheard(monkeypatch, tiny)
    hear(tiny, CLOCK, AsrOptions(prefix=f"<|startofprev|>{'red ' * 300}blue{START}<|en|>"))
    text = overheard.prompts[0]
    assert text.count("Ġred") == 232 - 4  # <|startofprev|>, the last word and two more
    assert text.endswith(f"Ġblue{START}<|en|>")


LANGUAGE_TAG = r"up to two of <|en|> to <|su|>"


@pytest.mark.parametrize(
    ("prefix", "problem"),
    [
        ("<|en|><|transcribe|>", "<|startoftranscript|> is missing"),
        ("just words", "<|startoftranscript|> is missing"),
        (f"{START}<|xx|>", "<|xx|> is not known to this model"),
        (f"{START}<|nospeech|>", "<|nospeech|> is not known to this model"),
        (f"{START}<|transcribe|><|en|>", "another order, or too many"),
        (f"{START}<|en|><|de|><|fr|>", "another order, or too many"),
        (f"{START}{START}", "another order, or too many"),
        (f"words {START}", "another order, or too many"),
        (f"{START}<|en|> a <|notimestamps|>", "another order, or too many"),
        (f"{START}<|31.00|>", "<|31.00|> is not known to this model"),
        (f"{START}<|en|> {'red ' * 60}", "the answer's first words have 239 bytes"),
    ],
)
def test_the_error_for_a_wrong_prefix_says_what_is_allowed(
    tiny: FasterWhisper, prefix: str, problem: str
) -> None:
    with pytest.raises(RequestError) as caught:
        hear(tiny, CLOCK, AsrOptions(prefix=prefix))
    assert (caught.value.code, caught.value.param) == ("invalid_value", "prefix")
    assert problem in str(caught.value)
    assert LANGUAGE_TAG in str(caught.value)
    with pytest.raises(RequestError, match=re.escape(problem)):
        check_prefix(prefix, tiny.info)


def test_an_english_model_allows_no_language_in_a_prefix(nano: FasterWhisper) -> None:
    assert (
        hear(nano, CLOCK, AsrOptions(prefix=f"{START}<|notimestamps|>")).text == "what time is it"
    )
    with pytest.raises(RequestError, match=r"<\|en\|> is not known to this model"):
        hear(nano, CLOCK, AsrOptions(prefix=f"{START}<|en|><|notimestamps|>"))


def test_the_language_is_detected_among_those_listed(tiny: FasterWhisper) -> None:
    free = hear(tiny, LIGHTS, AsrOptions())
    assert 0 < free.language_probability < 1
    others = tuple(code for code in ("fr", "es", "it") if code != free.language)
    listed = hear(tiny, LIGHTS, AsrOptions(languages=others))
    assert listed.language in others
    assert 1 / len(others) <= listed.language_probability <= 1
    assert hear(tiny, LIGHTS, AsrOptions("de")).language_probability == 1
    assert hear(tiny, LIGHTS, AsrOptions("xx")).language == free.language
    assert hear(tiny, LIGHTS, AsrOptions(languages=("xx",))).language == free.language


def test_nopad_equals_longest_for_other_weights(tiny: FasterWhisper) -> None:
    results = [hear(tiny, CLOCK, AsrOptions("en", padding=p)) for p in ("nopad", "longest")]
    assert results[0] == results[1]


@pytest.mark.parametrize("language", ["en", None])
def test_doubtful_text_of_a_short_window_is_decoded_again_in_30_s(
    tiny: FasterWhisper, language: str | None
) -> None:
    """Random weights never end their answer; `bucket` keeps the text of its short window."""
    items = [
        AsrItem(padding, CLOCK, True, AsrOptions(language, padding=padding))
        for padding in ("max", "longest", "bucket")
    ]
    full, short, bucket = tiny.decode(items)
    assert short.short_windows == ("too_long",)
    assert alike(full, short)
    assert (full.short_windows, bucket.short_windows) == ((), ())
    assert bucket.text != full.text
    assert alike(short, tiny.decode(items[1:2])[0])


def test_a_partial_is_decoded_in_its_short_window_only(tiny: FasterWhisper) -> None:
    """Random weights never end their answer, so it is a loop."""
    options = AsrOptions("en", padding="longest")
    (partial,) = tiny.decode([AsrItem("grows", CLOCK, False, options)])
    assert (partial.text, partial.is_rejected) == ("", True)
    assert partial.short_windows == ("too_long",)
    assert partial.is_doubtful_partial


def test_weights_trained_on_short_windows_are_trusted_there(nano: FasterWhisper) -> None:
    result = hear(nano, CLOCK, AsrOptions("en", padding="longest"))
    assert (result.text, result.short_windows) == ("what time is it", ())


def test_segments_and_words_are_within_the_audio_in_order(nano: FasterWhisper) -> None:
    for pcm in (LIGHTS, CLOCK):
        result = hear(nano, pcm, AsrOptions("en", timestamps="word"))
        end_ms = len(pcm) / 16
        times = [t for s in result.segments for t in (s.start_ms, s.end_ms)]
        assert times == sorted(times)
        assert all(0 <= time <= end_ms for time in times)
        assert result.words
        assert all(0 <= w.start_ms <= w.end_ms <= end_ms for w in result.words)
        assert all(0 <= w.confidence <= 1 for w in result.words)


def test_words_are_timed_where_they_are_spoken(nano: FasterWhisper) -> None:
    result = hear(nano, LIGHTS, AsrOptions("en", timestamps="word"))
    assert [word.text for word in result.words] == result.text.split()
    starts = [word.start_ms for word in result.words]
    assert starts == sorted(starts)
    assert starts[-1] > 400


@pytest.mark.parametrize("timestamps", ["none", "segment", "word"])
def test_a_segment_has_its_scores(nano: FasterWhisper, timestamps: Any) -> None:
    result = hear(nano, CLOCK, AsrOptions("en", timestamps=timestamps))
    (segment,) = result.segments
    assert (segment.text, segment.start_ms) == ("what time is it", 0)
    assert segment.end_ms <= len(CLOCK) / 16
    assert segment.tokens
    assert -1 < segment.avg_logprob < 0
    assert 0 < segment.compression_ratio < 1
    assert 0 <= segment.no_speech_prob < 0.1
    assert segment.temperature == 0
    assert (result.words != ()) == (timestamps == "word")


def test_tokens_have_their_probabilities(nano: FasterWhisper) -> None:
    assert hear(nano, CLOCK, AsrOptions("en")).tokens == ()
    result = hear(nano, CLOCK, AsrOptions("en", token_logprobs=True))
    assert b"".join(token.data for token in result.tokens).decode().strip() == result.text
    assert all(-1 < token.logprob <= 0 for token in result.tokens)


def test_bytes_of_cut_characters_are_kept(tiny: FasterWhisper) -> None:
    result = hear(tiny, LIGHTS, AsrOptions("en", token_logprobs=True))
    data = b"".join(token.data for token in result.tokens)
    assert data.decode(errors="replace").strip() == result.text


@pytest.mark.parametrize("timestamps", ["none", "segment", "word"])
def test_noise_gives_no_segments_words_or_tokens(nano: FasterWhisper, timestamps: Any) -> None:
    result = hear(nano, NOISE, AsrOptions("en", timestamps=timestamps))
    assert (result.text, result.is_rejected) == ("", True)
    assert (result.segments, result.words, result.tokens) == ((), (), ())


def test_the_no_speech_threshold_of_the_item_applies(folder: Path) -> None:
    model = create_with(folder, min_confidence=0, log_prob_threshold=0)
    low = replace(AsrOptions("en"), no_speech_threshold=0.0)
    high = replace(low, no_speech_threshold=1.0)
    results = model.decode([AsrItem(f"u{i}", CLOCK, True, o) for i, o in enumerate((low, high))])
    model.close()
    assert [bool(result.text) for result in results] == [False, True]
    assert results[0].is_rejected


@pytest.mark.parametrize("threshold", [None, 1.0])
def test_a_no_speech_threshold_of_one_rejects_nothing(threshold: float | None) -> None:
    """Neither repetition nor low confidence rejects the text, with a threshold of the settings or
    of the item."""
    limits = {"min_confidence": 1, "max_compression_ratio": 1.01, "log_prob_threshold": 0}
    model = create_with(NANO, **limits, no_speech_threshold=0.0 if threshold else 1.0)
    result = hear(model, CLOCK, AsrOptions("en", no_speech_threshold=threshold))
    strict = hear(model, CLOCK, AsrOptions("en", no_speech_threshold=0.6))
    model.close()
    assert (result.text, result.is_rejected) == ("what time is it", False)
    assert (strict.text, strict.is_rejected) == ("", True)


@pytest.mark.parametrize(
    ("tells_noise", "confidence", "is_rejected"),
    [(True, 0.7, False), (True, 0.0, True), (False, 0.7, True)],
    ids=["repeated words", "stopped", "a model that cannot tell noise"],
)
def test_repeated_words_are_kept_if_the_model_can_detect_noise(
    nano: FasterWhisper, tells_noise: bool, confidence: float, is_rejected: bool
) -> None:
    """With tiny.en this happens if a person says "one" eight times."""
    words = " one" * 11
    info = replace(nano.info, tells_noise=tells_noise)
    tokenizer, unused = nano._policy._tokenizer, cast(Any, None)
    policy = DecodePolicy(tokenizer, unused, info, DecodeRules())
    item_decode = policy.start_item(AsrItem("u", CLOCK, True, AsrOptions("en")), unused)
    window_task = policy.window_task(0, item_decode)
    tokens = tuple(tokenizer.encode(words))
    answer = WindowResult(tokens, words, -0.3, compression_ratio(words), 0.1, 0.0, confidence)
    assert answer.compression_ratio > window_task.thresholds.compression_ratio
    policy.add_result(item_decode, window_task, answer, None)
    result = item_decode.result(policy.unknown_language)
    assert (result.is_rejected, result.text) == (is_rejected, "" if is_rejected else words.strip())


@pytest.mark.parametrize(
    ("no_speech", "log_prob", "is_unsure"), [(1e-9, -9, True), (0.9, 0, True), (0.9, -9, False)]
)
def test_a_single_bad_score_marks_words_as_unsure_without_rejecting_them(
    no_speech: float, log_prob: float, is_unsure: bool
) -> None:
    thresholds = {"no_speech_threshold": no_speech, "log_prob_threshold": log_prob}
    model = create_with(NANO, min_confidence=0, **thresholds)
    result = hear(model, CLOCK, AsrOptions("en"))
    model.close()
    assert (result.text, result.is_unsure) == ("what time is it", is_unsure)


def test_a_failed_decode_is_retried_at_higher_temperatures(folder: Path) -> None:
    model = create_with(folder, min_confidence=0, padding="bucket", log_prob_threshold=-0.01)
    hot = AsrOptions("en", temperatures=(0.0, 0.4, 1.0), no_speech_threshold=1.0)
    cold = replace(hot, temperatures=(0.0,))
    items = [AsrItem(f"u{i}", LIGHTS, True, o) for i, o in enumerate((hot, cold))]
    tried: list[float] = []
    real = model._decoder._model

    class Watched:
        def generate(self, *arguments: Any, **options: Any) -> Any:
            tried.append(options.get("sampling_temperature", 0.0))
            return real.generate(*arguments, **options)

    model._decoder._model = Watched()
    first, second = model.decode(items)
    real.unload_model()
    assert tried == [0, 0.4, 1.0]
    assert second.segments[0].temperature == 0
    best = max(first.segments[0].avg_logprob, second.segments[0].avg_logprob)
    assert first.segments[0].avg_logprob == best
