"""Reading of SSML documents: what each element says, and what is refused."""

import pytest

from core.errors import RequestError
from pipeline.speech.ssml import SpeechManner, SsmlText, is_ssml, read_ssml
from pipeline.speech.ssml.manner import MAX_BREAK_MS
from pipeline.speech.ssml.reader import MAX_CHARS, MAX_DEPTH
from pipeline.speech.synthesis import Pause


def spoken(inside: str, language: str = "en") -> str:
    """Returns the words of a document with these elements."""
    return read_ssml(f"<speak>{inside}</speak>", language).plain_text


def said_as(kind: str, text: str, language: str = "en", written_form: str = "") -> str:
    return spoken(
        f'<say-as interpret-as="{kind}" format="{written_form}">{text}</say-as>', language
    )


@pytest.mark.parametrize(
    ("text", "is_document"),
    [
        ("<speak>Hi</speak>", True),
        (' \n<speak version="1.1">', True),
        ('<?xml version="1.0"?>\n<speak>', True),
        ("<speak/>", True),
        ("<speaker>", False),
        ("Say <speak>Hi</speak>", False),
        ("<b>Hi</b>", False),
    ],
)
def test_a_text_that_begins_with_speak_is_ssml(text: str, is_document: bool) -> None:
    assert is_ssml(text) is is_document


@pytest.mark.parametrize(
    ("attributes", "duration_ms"),
    [
        ('time="500ms"', 500),
        ('time="1.5s"', 1500),
        ('time="10s"', MAX_BREAK_MS),
        ('strength="x-strong"', 1500),
        ('strength="weak"', 250),
        ("", 500),
    ],
)
def test_a_break_is_a_pause_of_its_length(attributes: str, duration_ms: float) -> None:
    document = read_ssml(f"<speak>One <break {attributes}/> two.</speak>")
    plain = SpeechManner()
    assert document.parts == (SsmlText("One", plain), Pause(duration_ms), SsmlText("two.", plain))


@pytest.mark.parametrize("attributes", ['strength="none"', 'time="0ms"'])
def test_a_break_of_no_length_is_none(attributes: str) -> None:
    assert all(
        isinstance(part, SsmlText)
        for part in read_ssml(f"<speak>One <break {attributes}/> two.</speak>").parts
    )


@pytest.mark.parametrize(
    ("attribute", "rate"),
    [("slow", 0.75), ("120%", 1.2), ("+20%", 1.2), ("-10%", 0.9), ("1.5", 1.5), ("0%", 0.25)],
)
def test_prosody_changes_the_speed(attribute: str, rate: float) -> None:
    (part,) = read_ssml(f'<speak><prosody rate="{attribute}">Hi</prosody></speak>').parts
    assert isinstance(part, SsmlText)
    assert part.manner.rate == pytest.approx(rate)


@pytest.mark.parametrize(
    ("attribute", "volume"), [("silent", 0), ("+6dB", 2), ("-6dB", 0.5), ("loud", 2), ("50", 0.5)]
)
def test_prosody_changes_the_volume(attribute: str, volume: float) -> None:
    (part,) = read_ssml(f'<speak><prosody volume="{attribute}">Hi</prosody></speak>').parts
    assert isinstance(part, SsmlText)
    assert part.manner.volume == pytest.approx(volume, rel=0.01)


def test_manners_nest_and_end_with_their_element() -> None:
    document = read_ssml(
        '<speak xml:lang="en-US">One <voice name="hibari/heart"><prosody rate="slow">two'
        '<prosody rate="slow"> three</prosody></prosody> four</voice>'
        ' <lang xml:lang="de-AT">fünf</lang> six</speak>'
    )
    assert document.language == "en"
    assert document.parts == (
        SsmlText("One", SpeechManner("en")),
        SsmlText("two", SpeechManner(None, "hibari/heart", 0.75)),
        SsmlText("three", SpeechManner(None, "hibari/heart", 0.5625)),
        SsmlText("four", SpeechManner(None, "hibari/heart")),
        SsmlText("fünf", SpeechManner("de")),
        SsmlText("six", SpeechManner("en")),
    )


def test_sentences_and_paragraphs_end_a_text() -> None:
    document = read_ssml("<speak><p><s>One</s><s>Two</s></p>Three</speak>")
    assert [part.text for part in document.parts if isinstance(part, SsmlText)] == [
        "One",
        "Two",
        "Three",
    ]


@pytest.mark.parametrize(
    ("inside", "words"),
    [
        ('The <sub alias="World Wide Web">W<b>W</b>W</sub> is here', "The World Wide Web is here"),
        ('It is <emphasis level="strong">very</emphasis> hot', "It is very hot"),
        ('<amazon:effect name="whispered">Hush</amazon:effect>, <w role="x">you</w>', "Hush, you"),
        ("<metadata><x>hidden</x></metadata>Seen <!-- not this -->", "Seen"),
        ("5 &lt; 6 &amp; <![CDATA[<b>]]>", "5 < 6 & <b>"),
        ("a\n  b", "a b"),
        ("", ""),
    ],
)
def test_the_words_of_elements(inside: str, words: str) -> None:
    assert spoken(inside) == words


@pytest.mark.parametrize(
    ("kind", "text", "language", "written_form", "words"),
    [
        ("characters", "aB@3", "en", "", "A, B, at, 3"),
        ("spell-out", "zg", "sv", "", "Z, G"),
        ("digits", "12-34", "en", "", "1 2 3 4"),
        ("telephone", "+49 (30) 123", "de", "", "plus 4 9, 3 0, 1 2 3"),
        ("cardinal", "1234", "en", "", "1234"),
        ("ordinal", "22", "en", "", "22nd"),
        ("ordinal", "112", "en", "", "112th"),
        ("ordinal", "3", "fr", "", "troisième"),
        ("number", "3", "de", "ordinal", "dritter"),
        ("ordinal", "three", "en", "", "three"),
        ("date", "2024-05-01", "en", "", "May 1st, 20 24"),
        ("date", "05/01/1995", "en", "mdy", "May 1st, 19 95"),
        ("date", "1.5.", "de", "dm", "erster Mai"),
        ("date", "40.50.2024", "de", "", "40.50.2024"),
        ("time", "14:30", "de", "hms24", "14 Uhr 30"),
        ("time", "2:30pm", "en", "hms12", "2 30 PM"),
        ("time", "later", "en", "", "later"),
        ("date", "1.5.2024", "sv", "", "1.5.2024"),
    ],
)
def test_say_as(kind: str, text: str, language: str, written_form: str, words: str) -> None:
    assert said_as(kind, text, language, written_form) == words


def test_say_as_follows_the_language_of_its_place() -> None:
    inside = '<lang xml:lang="de"><say-as interpret-as="ordinal">2</say-as></lang>'
    assert spoken(inside, "en") == "zweiter"


BOMB = (
    '<?xml version="1.0"?><!DOCTYPE speak [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;">]>'
    "<speak>&b;</speak>"
)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ("<speak>One", "line 1, column 11: no element found"),
        ("<speak>\n<b>One</i></speak>", "line 2, column 9: mismatched tag"),
        ("<speak>&nbsp;</speak>", "undefined entity"),
        (BOMB, "document type"),
        ('<!DOCTYPE speak SYSTEM "file:///etc/passwd"><speak/>', "document type"),
        ("<talk/>", "begins with <talk>, not <speak>"),
        ("<speak>" + "<b>" * MAX_DEPTH, f"more than {MAX_DEPTH} elements"),
        (f"<speak>{'x' * MAX_CHARS}</speak>", f"allowed: up to {MAX_CHARS}"),
        ('<speak><break time="11s"/></speak>', "allowed: up to 10s"),
        ('<speak><break time="soon"/></speak>', "values like 500ms"),
        ("<speak>" + '<break time="10s"/>' * 7 + "</speak>", "more than 60s together"),
        ('<speak><break strength="big"/></speak>', "allowed: none, x-weak"),
        ('<speak><prosody rate="quick">Hi</prosody></speak>', "rate of prosody 'quick'"),
        ('<speak><prosody volume="+xdB">Hi</prosody></speak>', "volume of prosody"),
        ('<speak><say-as interpret-as="song">Hi</say-as></speak>', "allowed: address"),
        ("<speak><say-as>Hi</say-as></speak>", "without interpret-as"),
        ('<speak xml:lang="?">Hi</speak>', "codes like de"),
    ],
)
def test_a_wrong_document_is_refused_with_the_reason(document: str, message: str) -> None:
    with pytest.raises(RequestError) as refused:
        read_ssml(document)
    assert refused.value.code == "invalid_ssml"
    assert message in str(refused.value)
    assert len(str(refused.value)) < 400
