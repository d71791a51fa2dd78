"""All ids come from the tokenizer; one that cannot be right is refused by name."""

import pytest

from engines.tts.indri.token_layout import AUDIO_IDS, LayoutError, TokenLayout
from tests.engines.tts.indri.checkpoint import MARKERS, SPEAKERS, tokenizer, vocabulary_size

MADE = tokenizer()


def test_the_ids_are_those_of_the_tokenizer() -> None:
    layout = TokenLayout.read(MADE, vocabulary_size(MADE))
    assert layout.first_audio == MADE.token_to_id("[code_0]")
    assert layout.first_code(7) == MADE.token_to_id(f"[code_{7 * 2048}]")
    for token, found in (
        ("[text]", layout.text),
        ("[mimi]", layout.mimi),
        ("[convert]", layout.convert),
        ("[stop]", layout.stop),
    ):
        assert found == MADE.token_to_id(token)
    assert dict(layout.speakers) == {name: MADE.token_to_id(f"[{name}]") for name in SPEAKERS}


def test_the_speaker_of_recordings_is_no_voice() -> None:
    assert "spkr_unk" not in TokenLayout.read(MADE, vocabulary_size(MADE)).speakers


def test_a_model_with_too_few_ids_is_refused_by_name() -> None:
    with pytest.raises(LayoutError, match=r"\[spkr_99\] has the id \d+; allowed: \d+ to \d+"):
        TokenLayout.read(MADE, vocabulary_size(MADE) - 6)


def test_a_tokenizer_without_room_for_the_codes_is_refused() -> None:
    class WithoutCodes:
        encode = MADE.encode

        def get_vocab(self, with_added_tokens: bool) -> dict[str, int]:
            vocabulary: dict[str, int] = MADE.get_vocab(with_added_tokens)
            return vocabulary if with_added_tokens else {**vocabulary, "one more": AUDIO_IDS}

    with pytest.raises(LayoutError, match="has the id"):
        TokenLayout.read(WithoutCodes(), vocabulary_size(MADE))


def test_a_tokenizer_of_another_model_is_refused() -> None:
    class OfAnother:
        encode = MADE.encode

        def __init__(self, left_out: str) -> None:
            self._left_out = left_out

        def get_vocab(self, with_added_tokens: bool) -> dict[str, int]:
            vocabulary: dict[str, int] = MADE.get_vocab(with_added_tokens)
            return {token: n for token, n in vocabulary.items() if self._left_out not in token}

    with pytest.raises(LayoutError, match="no speakers"):
        TokenLayout.read(OfAnother("spkr_"), vocabulary_size(MADE))


@pytest.mark.parametrize("marker", [m for m in MARKERS if m in ("[text]", "[stop]", "[convert]")])
def test_a_missing_marker_is_named(marker: str) -> None:
    class Without:
        get_vocab = MADE.get_vocab

        def encode(self, sequence: str, *, add_special_tokens: bool) -> object:
            text = "more than one token" if sequence == marker else sequence
            return MADE.encode(text, add_special_tokens=add_special_tokens)

    with pytest.raises(LayoutError, match=f"no token \\{marker[:-1]}"):
        TokenLayout.read(Without(), vocabulary_size(MADE))  # type: ignore[arg-type]
