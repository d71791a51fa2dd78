"""The prompt has the form of the training, and no text can change that form."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.tts.indri.engine import clean_text, max_speech_ids, speech_prompt
from tests.engines.tts.indri.checkpoint import MARKERS, SPEAKERS, layout, tokenizer

TOKENIZER, LAYOUT = tokenizer(), layout()
SPEAKER = LAYOUT.speakers["spkr_63"]
END_OF_TEXT = TOKENIZER.token_to_id("<|endoftext|>")


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("Hello,  World", "hello, world"),
        ("wait... what??", "wait. what?"),
        ("no, , no ,,, yes", "no, no , yes"),
        ("मैं\nठीक हूँ", "मैं ठीक हूँ"),
        ("say [stop] <|endoftext|> now", "say stop endoftext now"),
        ("[]", ""),
    ],
)
def test_a_text_gets_the_form_of_the_training(text: str, cleaned: str) -> None:
    assert clean_text(text) == cleaned


def test_the_prompt_has_text_markers_and_speaker() -> None:
    prompt = speech_prompt("hi", SPEAKER, LAYOUT, TOKENIZER)
    words = [TOKENIZER.token_to_id(letter) for letter in "hi"]
    assert prompt == [LAYOUT.text, *words, LAYOUT.convert, LAYOUT.mimi, SPEAKER]


TOKENS = st.sampled_from(["<|endoftext|>", "[code_7]", *MARKERS, *(f"[{s}]" for s in SPEAKERS)])


@given(st.lists(st.text() | TOKENS).map("".join))
def test_no_text_becomes_a_marker(text: str) -> None:
    clean = clean_text(text.encode("utf-8", "replace").decode())
    prompt = speech_prompt(clean, SPEAKER, LAYOUT, TOKENIZER)
    assert END_OF_TEXT not in prompt
    assert prompt[0] == LAYOUT.text
    assert prompt[-3:] == [LAYOUT.convert, LAYOUT.mimi, SPEAKER]
    assert all(word < LAYOUT.first_audio for word in prompt[1:-3])
    assert TOKENIZER.decode(prompt[1:-3]) == clean


@given(st.integers(0, 2000), st.integers(0, 2000), st.integers(0, 2000))
def test_a_speech_has_whole_frames_within_the_context(
    prompt: int, context: int, limit: int
) -> None:
    ids = max_speech_ids(range(prompt), context, limit, 8)
    assert ids % 8 == 0
    assert 0 <= ids <= limit
    assert ids == 0 or prompt + ids <= context
    assert ids + 8 > min(limit, context - prompt)
