"""SSML documents."""

from core.errors import RequestError
from pipeline.speech.normalize.table import LANGUAGES
from pipeline.speech.ssml import SsmlText, is_ssml, read_ssml
from pipeline.speech.ssml.manner import MAX_BREAK_MS, MAX_RATE, MIN_RATE
from pipeline.speech.ssml.reader import MAX_SILENCE_MS
from tests.fuzz.target import Target

ELEMENTS = """<p><s>One <break time="500ms"/> two<break strength="strong"/></s></p>
<prosody rate="120%" volume="+6dB">three</prosody> <sub alias="four">4</sub>
<lang xml:lang="de">f&#252;nf</lang> <voice name="hibari/heart" xml:lang="en">six</voice>
<say-as interpret-as="date" format="dmy">1.5.2024</say-as>
<say-as interpret-as="time">14:30</say-as> <say-as interpret-as="ordinal">3</say-as>
<say-as interpret-as="telephone">+49 30 12</say-as> <say-as interpret-as="characters">a@b</say-as>
<emphasis level="strong">seven</emphasis> <x:y/> <![CDATA[<8>]]> &lt; <!-- nine -->"""
BOMB = b'<!DOCTYPE s [<!ENTITY a "xxxx"><!ENTITY b "&a;&a;&a;">]><speak>&b;</speak>'


def ssml_documents(data: bytes) -> None:
    """Checks that a document is refused, or that its parts are within the limits."""
    text = data.decode(errors="replace")
    is_ssml(text)
    for language in ("", *LANGUAGES):
        try:
            document = read_ssml(text, language)
        except RequestError as error:
            assert error.code == "invalid_ssml"
            assert len(str(error)) < 500
            return
        pauses_ms = 0.0
        for part in document.parts:
            if isinstance(part, SsmlText):
                assert part.text == " ".join(part.text.split()) != ""
                assert MIN_RATE <= part.manner.rate <= MAX_RATE
                assert 0 <= part.manner.volume < float("inf")
            else:
                assert 0 < part.duration_ms <= MAX_BREAK_MS
                pauses_ms += part.duration_ms
        assert pauses_ms <= MAX_SILENCE_MS
        assert len(document.plain_text) <= 16 * len(text) + 16


TARGETS = (
    Target(
        name="ssml_documents",
        one_input=ssml_documents,
        seeds=(f"<speak xml:lang='en-US'>{ELEMENTS}</speak>".encode(), BOMB),
        words=(
            *("<speak>", "</speak>", "<break time='1s'/>", "<prosody rate='-50%'>", "</prosody>"),
            *("<say-as interpret-as='", "ordinal", "date", "time", "' format='ymd'>", "</say-as>"),
            *("<!DOCTYPE", "<!ENTITY", "&a;", "<![CDATA[", "xml:lang='", "volume='+12dB'"),
        ),
        max_bytes=2048,
    ),
)
