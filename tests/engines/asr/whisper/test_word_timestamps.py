"""Our tokenizer and word times equal faster-whisper's: same tokens, same words, same times."""

import random
from copy import deepcopy
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
from faster_whisper import WhisperModel
from faster_whisper.tokenizer import Tokenizer as Theirs
from faster_whisper.transcribe import get_suppressed_tokens
from tokenizers import Tokenizer as Table

from engines.asr.whisper.segments import TokenSegment
from engines.asr.whisper.tokenizer import Tokenizer
from engines.asr.whisper.word_timestamps import add_words, text_tokens
from tests.engines.nano import NANO

BEFORE, AFTER = "\"'“¿([{-", "\"'.。,，!！?？:：”)]}、"
PUNCTUATION = (".", ",", "?", ' "', '"', " -", "。", " (", ")")


@dataclass(frozen=True)
class Found:
    alignments: list[tuple[int, int]]
    text_token_probs: list[float]


@pytest.fixture(scope="module")
def table() -> Any:
    return Table.from_file(str(NANO / "tokenizer.json"))


@pytest.fixture(scope="module")
def both(table: Any) -> tuple[Tokenizer, Theirs]:
    return Tokenizer(table, False), Theirs(table, False)


def text(chance: random.Random, tokenizer: Tokenizer, table: Any) -> list[int]:
    """Returns random tokens with punctuation and parts of characters among them."""
    tokens = [chance.randrange(tokenizer.eot) for _ in range(chance.randrange(1, 14))]
    for mark in chance.sample(PUNCTUATION, 4):
        at = chance.randrange(len(tokens) + 1)
        tokens[at:at] = tokenizer.encode(mark)
    return tokens


def test_special_tokens_equal_theirs(both: tuple[Tokenizer, Theirs]) -> None:
    ours, theirs = both
    for name in ("sot", "sot_prev", "eot", "no_timestamps", "timestamp_begin", "sot_sequence"):
        assert getattr(ours, name) == getattr(theirs, name)
    expected = get_suppressed_tokens(theirs, [-1]) or ()
    assert ours.suppressed == tuple(token for token in expected if token)


@pytest.mark.parametrize("language", ["en", "ja"])
def test_texts_are_split_as_by_faster_whisper(table: Any, language: str) -> None:
    """This also holds inside a character, at timestamps, and where words have no spaces between
    them."""
    is_multilingual = language != "en"
    ours = Tokenizer(table, is_multilingual, "transcribe", language)
    theirs = Theirs(table, is_multilingual, "transcribe", language)
    chance = random.Random(1)
    for _ in range(60):
        tokens = [*text(chance, ours, table), ours.timestamp_begin + 7, ours.eot]
        assert ours.split_to_word_tokens(tokens) == theirs.split_to_word_tokens(tokens)
        assert ours.decode(tokens) == theirs.decode(tokens)


def path(chance: random.Random, count: int) -> Found:
    """Returns a random alignment of the audio with pauses in it."""
    position, steps = 0, []
    for token in range(count + 1):
        for _ in range(chance.choice((1, 2, 9, 40))):
            steps.append((token, position))
            position += 1
    return Found(steps, [chance.random() for _ in range(count)])


@pytest.mark.parametrize("seed", range(60))
def test_word_times_equal_theirs(both: tuple[Tokenizer, Theirs], table: Any, seed: int) -> None:
    ours, theirs = both
    chance = random.Random(seed)
    pieces, now_s = list[TokenSegment](), chance.random()
    for _ in range(chance.randrange(1, 4)):
        end_s = now_s + chance.uniform(0.1, 4)
        tokens = [ours.timestamp_begin, *text(chance, ours, table), ours.timestamp_begin + 9]
        pieces.append(
            TokenSegment(seek=chance.choice((0, 300)), start=now_s, end=end_s, tokens=tokens)
        )
        now_s = end_s
    spoken = [token for piece in pieces for token in text_tokens(piece, ours)]
    found, expected = path(chance, len(spoken)), deepcopy(pieces)
    whisper: Any = SimpleNamespace(frames_per_second=100, tokens_per_second=50)
    whisper.model = SimpleNamespace(align=lambda *_, **__: [found])
    whisper.find_alignment = lambda *of: WhisperModel.find_alignment(whisper, *of)
    until_s = chance.random()
    WhisperModel.add_word_timestamps(
        whisper, [expected], theirs, None, 3000, BEFORE, AFTER, last_speech_timestamp=until_s
    )
    add_words(pieces, found, ours, until_s)
    assert pieces == expected
