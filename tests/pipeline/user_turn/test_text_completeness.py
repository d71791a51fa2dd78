"""Texts that read like the end of a turn, in the languages that have word lists."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pipeline.user_turn.speech_detection.endpointing import combine_probabilities, endpoint_delay_ms
from pipeline.user_turn.turn_detection import HESITATES, SURELY, completeness

OPEN = [
    ("en", "turn on the"),
    ("en", "Turn on the."),  # recognisers set full stops anywhere
    ("en", "turn on"),
    ("en", "Turn off the lights and"),
    ("en", "could you please"),
    ("en", "can you turn the lights in the"),
    ("en", "remind me"),
    ("en", "Remind me to"),
    ("en", "set a timer for"),
    ("en", "set a timer for ten"),
    ("en", "set a timer for 10"),
    ("en", "Set a timer for one hundred and"),
    ("en", "what is"),
    ("en", "what's the weather in London or"),
    ("en", "half past"),
    ("en", "my number is five five five"),
    ("en", "my number is 5 5 5"),
    ("en", "I wanted to ask you something..."),
    ("en", "In the kitchen,"),
    ("en", "and the the um"),
    ("en", "I’d like"),
    ("en", "I'd like a coffee and"),
    ("en", "I want to turn on"),
    ("en", "I want to go"),
    ("en", "I want an"),
    ("fr", "je voudrais un"),
    ("de", "Mach das Licht in der"),
    ("de", "schalte die Heizung an und"),
    ("de", "kannst du bitte"),
    ("de", "stelle einen Timer für"),
    ("de", "stelle einen Timer für zehn"),
    ("de", "wecke mich um halb"),
    ("de", "Erinnere mich"),
    ("de", "ich möchte dass"),
    ("de", "mach die ähm"),
    ("fr", "allume la"),
    ("fr", "éteins la lumière et"),
    ("fr", "mets un minuteur pour"),
    ("fr", "mets un minuteur pour dix"),
    ("fr", "est-ce que tu peux"),
    ("fr", "je voudrais"),
    ("fr", "ouvre les volets de"),
    ("fr", "il fait euh"),
    ("es", "enciende la"),
    ("es", "apaga las luces y"),
    ("es", "pon un temporizador para"),
    ("es", "pon una alarma en diez"),
    ("es", "quiero que"),
    ("es", "sube la calefacción porque"),
    ("it", "accendi la"),
    ("it", "spegni le luci della"),
    ("it", "imposta un timer per dieci"),
    ("it", "potresti per favore"),
    ("it", "vorrei"),
    ("it", "abbassa il riscaldamento e"),
    ("nl", "doe het licht in de"),
    ("nl", "zet de verwarming aan en"),
    ("nl", "zet een timer voor tien"),
    ("nl", "kun je"),
    ("nl", "ik wil graag"),
    ("nl", "doe de ehm"),
    ("pt", "acende a"),
    ("pt", "apague as luzes do"),
    ("pt", "põe um temporizador para dez"),
    ("pt", "podes por favor"),
    ("pt", "eu queria que"),
    ("pt", "aumenta o aquecimento porque"),
    ("ja", "キッチンの電気を、"),
    ("zh", "打开客厅的灯，"),
]

WHOLE = [
    ("en", "turn on the lights"),
    ("en", "Turn the lights on."),
    ("en", "turn it off"),
    ("en", "could you please turn off the radio"),
    ("en", "what time is it"),
    ("en", "What's the weather in Rome?"),
    ("en", "set a timer for ten minutes"),
    ("en", "set the heater to twenty"),
    ("en", "wake me at seven please"),
    ("en", "thank you"),
    ("en", "stop"),
    ("en", "Yes."),
    ("en", "never mind"),
    ("en-GB", "close the curtains"),
    ("de", "mach das Licht an"),
    ("de", "Schalte das Licht in der Küche ein."),
    ("de", "wie spät ist es"),
    ("de", "stelle einen Timer für zehn Minuten"),
    ("de", "mach das Radio leiser bitte"),
    ("de", "ja"),
    ("de", "Vielen Dank!"),
    ("fr", "allume la lumière"),
    ("fr", "quelle heure est-il"),
    ("fr", "mets un minuteur de dix minutes s'il te plaît"),
    ("fr", "Oui."),
    ("es", "enciende la luz"),
    ("es", "qué hora es"),
    ("es", "¿Qué hora es?"),
    ("es", "apaga la luz por favor"),
    ("es", "sí"),
    ("es_MX", "cierra las cortinas"),
    ("it", "accendi la luce"),
    ("it", "che ore sono"),
    ("it", "imposta un timer di dieci minuti per favore"),
    ("it", "Spegnila."),
    ("it", "chiudi le tende"),
    ("nl", "doe het licht aan"),
    ("nl", "zet een timer voor tien minuten"),
    ("nl", "wat is het weer in Utrecht"),
    ("nl", "Dank je wel!"),
    ("nl", "zet de radio zachter alsjeblieft"),
    ("pt", "acende a luz"),
    ("pt", "que horas são"),
    ("pt", "Apague as luzes do quarto."),
    ("pt", "define um temporizador de dez minutos por favor"),
    ("pt", "Obrigado!"),
    ("en", "get me a small espresso"),
    ("en", "I want an Americano."),
    ("en", "okay I'd like a large latte with soy milk"),
    ("de", "ich hätte gern einen Kaffee"),
    ("fr", "je voudrais un café"),
    ("es", "quiero un café con leche"),
    ("it", "vorrei un caffè"),
    ("nl", "mag ik een koffie"),
    ("pt", "queria um café"),
    ("zh", "打开客厅的灯。"),
]

UNKNOWN = [
    ("en", ""),
    ("en", "  ... "),
    ("en", "the weather in paris"),
    ("en", "I want coffee"),
    ("fr", "je voudrais allumer"),
    ("en", "where are you from"),
    ("en", "he had lived there since 1881"),
    ("en", "I do not know where it is"),
    ("ja", "キッチンの電気をつけて"),
    ("xx", "turn on the"),
]


@pytest.mark.parametrize(("language", "text"), OPEN)
def test_incomplete_texts(language: str, text: str) -> None:
    value = completeness(text, language)
    assert value is not None
    assert value <= 0.25


@pytest.mark.parametrize(("language", "text"), WHOLE)
def test_complete_texts(language: str, text: str) -> None:
    value = completeness(text, language)
    assert value is not None
    assert value >= 0.65


@pytest.mark.parametrize(("language", "text"), UNKNOWN)
def test_undecidable_texts(language: str, text: str) -> None:
    value = completeness(text, language)
    assert value is None or value >= 0.65  # a question may count as complete


def test_certain_texts() -> None:
    assert completeness("turn on the light please", "en") == SURELY
    assert completeness("turn on the light um", "en") == HESITATES
    assert completeness("Where are you from?", "en") == 0.8


LANGUAGES = ["en", "de", "fr", "es", "it", "nl", "pt", "", "EN-us"]


@given(st.text(max_size=60), st.sampled_from(LANGUAGES))
@example("please", "en")
@example("please please", "en")
@example("and so", "en")
@example("please " * 20_000, "en")
@example("." * 100_000 + "x", "en")
def test_any_text_gives_a_probability_or_none(text: str, language: str) -> None:
    value = completeness(text, language)
    assert value is None or 0 <= value <= 1


SOME_WORDS = ["please", "turn", "on", "the", "light", "and", "5", "five", "for", "um", "is", "."]


@given(st.lists(st.sampled_from(SOME_WORDS), max_size=8))
def test_any_order_of_words_gives_a_probability_or_none(words: list[str]) -> None:
    value = completeness(" ".join(words), "en")
    assert value is None or 0 <= value <= 1
    if value is not None and words and words[-1] in ("the", "and"):
        assert value <= 0.25


def test_text_and_audio_together_set_the_wait() -> None:
    def wait(text: str, audio: float | None) -> float:
        return endpoint_delay_ms("auto", combine_probabilities(audio, completeness(text, "en")))

    assert wait("turn on the light please", None) < 160
    assert wait("turn on the light", 0.7) < wait("turn on the light", None)
    assert wait("turn on the", None) > 550
    assert wait("turn on the", 0.7) > 450
    assert wait("the light", None) == 450
