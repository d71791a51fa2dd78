"""The pure parts around PocketSphinx: templates, language model, dictionary, cepstra, scores."""

from math import log10
from pathlib import Path
from random import Random

import numpy as np
import pytest

from core.audio import ASR_RATE_HZ, Pcm
from engines.asr.pocketsphinx import training_text
from engines.asr.pocketsphinx.confidence import (
    command_confidence,
    confidence_features,
    speech_confidence,
)
from engines.asr.pocketsphinx.decoder import BestPath, WordSpan
from engines.asr.pocketsphinx.features import cepstra, mel_power, whole_utterance_cepstra
from engines.asr.pocketsphinx.language_model import END, START, TrigramModel
from engines.asr.pocketsphinx.phrases import RULES, SENTENCE_COUNT, WEIGHTED, default_phrases
from engines.asr.pocketsphinx.pronunciation import from_letters, read_dictionary, write_dictionary
from engines.asr.pocketsphinx.templates import sample


@pytest.fixture
def pcm() -> Pcm:
    """Returns 1.5 s of sound that changes its loudness and spectrum, as speech does."""
    at_s = np.arange(24_000) / ASR_RATE_HZ
    noise = np.random.default_rng(1).normal(0, 300, len(at_s))
    tone = np.sin(2 * np.pi * (120 + 40 * np.sin(5 * at_s)) * at_s * np.arange(1, 20)[:, None])
    sound: Pcm = ((tone.mean(axis=0) * 6000 + noise) * np.sin(4 * at_s) ** 2).astype(np.int16)
    return sound


SENTENCE = ("turn on the lights", "turn off the lights", "turn on the fan")


@pytest.mark.parametrize(
    ("template", "sentences"),
    [
        ("stop", {"stop"}),
        ("(a|b c) d", {"a d", "b c d"}),
        ("a [b]", {"a", "a b"}),
        ("[a|b] c", {"c", "a c", "b c"}),
        ("<x> <x>", {"p p", "p q", "q p", "q q"}),
        ("[(a|<x>) b] c", {"c", "a b c", "p b c", "q b c"}),
    ],
)
def test_templates_produce_all_their_sentences(template: str, sentences: set[str]) -> None:
    random = Random(1)
    said = {sample(template, {"x": ("p", "q")}, random) for _ in range(200)}
    assert said == sentences


@pytest.mark.parametrize("template", ["a [b", "a b)", "(a|b]", "a ]"])
def test_unbalanced_templates_are_refused(template: str) -> None:
    with pytest.raises(ValueError, match=r"unbalanced|missing"):
        sample(template, {}, Random(1))


def test_every_built_in_template_is_valid() -> None:
    for _, template in WEIGHTED:
        assert all(sample(template, RULES, Random(seed)) for seed in range(5))


@pytest.mark.many  # many sentences
def test_the_built_in_sentences_are_the_same_each_time() -> None:
    first = default_phrases()
    assert first == default_phrases()
    assert len(first) == SENTENCE_COUNT
    assert "what time is it" in first


@pytest.mark.many  # many sentences
def test_given_phrases_get_half_of_the_weight() -> None:
    text = training_text(("Turn on the Wurlitzer!", "don't panic", "?"))
    given = [line for line in text if line in {"turn on the wurlitzer", "don't panic"}]
    assert len(given) == len(text) / 2


@pytest.mark.parametrize("history", [(), (START,), ("the",), ("on", "the"), ("fan", "fan")])
def test_probabilities_after_a_history_sum_to_one(history: tuple[str, ...]) -> None:
    model = TrigramModel(SENTENCE)
    words = [*model.vocabulary, END]
    assert sum(10 ** model.log10(word, history) for word in words) == pytest.approx(1)


def test_known_sentences_are_likelier_than_shuffled_ones() -> None:
    model = TrigramModel(SENTENCE)
    said, shuffled = ["turn", "off", "the", "fan"], ["fan", "the", "off", "turn"]
    assert model.mean_log10(said, is_whole=True) > model.mean_log10(shuffled, is_whole=True) + 0.5
    assert model.mean_log10(said[:2], is_whole=False) > model.mean_log10(said[:2], is_whole=True)


def test_an_arpa_file_states_its_number_of_lines(tmp_path: Path) -> None:
    path = tmp_path / "lm.arpa"
    TrigramModel(SENTENCE).write_arpa(path)
    text = path.read_text()
    for order in (1, 2, 3):
        count = int(text.split(f"ngram {order}=")[1].split()[0])
        section = text.split(f"\\{order}-grams:\n")[1].split("\n\n")[0]
        assert len(section.splitlines()) == count


@pytest.mark.parametrize(
    ("word", "phones"),
    [
        ("lake", "L EY K"),
        ("kallax", "K AE L AE K S"),
        ("philips", "F IH L IH P S"),
        ("shelly", "SH EH L IY"),
        ("müller", "M UW L ER"),
        ("ж", "AH"),
    ],
)
def test_unknown_names_are_pronounced_by_their_letters(word: str, phones: str) -> None:
    assert " ".join(from_letters(word)) == phones


def test_the_dictionary_has_variants_and_unknown_words(tmp_path: Path) -> None:
    source, built = tmp_path / "cmu.dict", tmp_path / "built.dict"
    source.write_text("door D AO R\nread R EH D\nread(2) R IY D\nother AH DH ER\n")
    known = read_dictionary(source, {"door", "read", "zub"})
    write_dictionary(built, known, {"door", "read", "zub"})
    assert built.read_text().splitlines() == [
        "door D AO R",
        "door(2) D AO",
        "read R EH D",
        "read(2) R IY D",
        "zub Z AH B",
    ]


@pytest.mark.parametrize("samples", [0, 409, 410, 570, 7000, 20000])
def test_cepstra_do_not_depend_on_later_audio(samples: int, pcm: Pcm) -> None:
    early, late = cepstra(mel_power(pcm[:samples])), cepstra(mel_power(pcm))
    assert early.shape == (max(0, (samples - 410) // 160 + 1), 13)
    if len(early) >= 40:
        np.testing.assert_allclose(early, late[: len(early)], rtol=1e-6)


def test_cepstra_do_not_depend_on_the_level(pcm: Pcm) -> None:
    mel = mel_power(pcm)
    np.testing.assert_allclose(cepstra(mel), cepstra(mel / 400), atol=0.05)
    np.testing.assert_allclose(whole_utterance_cepstra(mel).mean(axis=0), np.zeros(13), atol=1e-4)


def test_stretched_and_sparse_words_have_a_low_confidence() -> None:
    noise = np.random.default_rng(1).normal(0, 900, 3 * ASR_RATE_HZ)
    gaps = np.where(np.arange(len(noise)) % 4000 < 3000, 1, 0.03)
    mel = mel_power((noise * gaps).astype(np.int16))
    frames = len(mel)
    dense = tuple(WordSpan("on", at, at + 25) for at in range(0, frames - 25, 25))
    likely, unlikely = log10(0.15), log10(0.004)
    speech = confidence_features(BestPath(dense, frames, -50.0 * frames), mel)
    stretched = confidence_features(
        BestPath((WordSpan("on", 0, frames),), frames, -50.0 * frames), mel
    )
    sparse = confidence_features(BestPath(dense[:4], frames, -50.0 * frames), mel)
    steady = confidence_features(BestPath(dense, frames, -50.0 * frames), np.ones_like(mel))
    assert speech is not None
    assert stretched is not None
    assert sparse is not None
    assert steady is not None
    assert command_confidence(speech, likely) > 0.7 > command_confidence(speech, unlikely)
    assert command_confidence(stretched, likely) < 0.7
    assert command_confidence(steady, likely) < 0.3
    assert command_confidence(sparse, likely) < 0.3
    assert speech_confidence(speech) > 0.85 > speech_confidence(stretched)
    assert speech_confidence(sparse) < 0.2
    assert confidence_features(BestPath((), frames, 0.0), mel) is None
