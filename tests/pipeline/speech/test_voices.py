"""The choice of a voice for the language of an answer."""

from collections.abc import AsyncGenerator, AsyncIterable, Callable, Mapping

import pytest

from core.audio import AudioFrame
from core.errors import RequestError
from engines.base import Tts, TtsInfo, WordMark
from pipeline.speech.voices import choose_voice, find_voices, list_voices


class Voice:
    def __init__(self, name: str, voices: Mapping[str, tuple[str, ...]]) -> None:
        self.info = TtsInfo(name, 16_000, voices)

    async def speak(
        self,
        text: AsyncIterable[str],
        *,
        language: str,
        voice: str | None = None,
        speed: float = 1,
        on_word: Callable[[WordMark], None] | None = None,
    ) -> AsyncGenerator[AudioFrame, None]:
        silence: tuple[AudioFrame, ...] = ()
        for frame in silence:
            yield frame


PIPER = Voice("piper", {"en": ("amy", "joe"), "fr": ("siwis",)})
ESPEAK = Voice("espeak", {"en": ("en-us", "en-gb"), "de": ("de",), "fr": ("fr-fr",)})
KOKORO = Voice("kokoro", {"en": ("heart",)})
ENGINES: Mapping[str, Tts] = {"kokoro": KOKORO, "default": PIPER, "piper": PIPER, "espeak": ESPEAK}


@pytest.mark.parametrize(
    ("language", "wish", "engine", "voice"),
    [
        ("en", None, "piper", "amy"),
        ("en", "default", "piper", "amy"),
        ("fr", None, "piper", "siwis"),
        ("de", None, "espeak", "de"),
        ("en", "joe", "piper", "joe"),
        ("en", "heart", "kokoro", "heart"),
        ("en", "en-gb", "espeak", "en-gb"),
        ("en", "en-gb+f3", "espeak", "en-gb+f3"),
        ("fr", "en-gb", "espeak", "fr-fr"),
        ("fr", "joe", "piper", "siwis"),
        ("fr", "heart", "piper", "siwis"),
        ("de", "heart", "espeak", "de"),
        ("en", "espeak", "espeak", "en-us"),
        ("en", "espeak:en-gb", "espeak", "en-gb"),
        ("de", "piper:joe", "espeak", "de"),
        ("en", "espeak/en-gb", "espeak", "en-gb"),
        ("en", "espeak/en-gb+f3", "espeak", "en-gb+f3"),
        ("de", "piper/joe", "espeak", "de"),
        ("en", "JOE", "piper", "joe"),
        ("en", "piper/Joe", "piper", "joe"),
    ],
)
def test_the_nearest_voice_that_speaks_the_language_is_chosen(
    language: str, wish: str | None, engine: str, voice: str
) -> None:
    chosen = choose_voice(ENGINES, language, wish)
    assert (chosen.engine, chosen.voice) == (engine, voice)
    assert chosen.tts.info.name == engine


@pytest.mark.parametrize("wish", ["nobody", "piper:en-gb", "nobody:joe", ""])
def test_an_unknown_voice_is_refused_and_the_allowed_ones_named(wish: str) -> None:
    allowed = (
        "allowed: default, piper, kokoro, espeak, amy, joe, siwis, heart, en-us, en-gb, de, fr-fr"
    )
    with pytest.raises(RequestError) as caught:
        choose_voice(ENGINES, "en", wish)
    assert str(caught.value) == f"no voice {wish!r}; {allowed}"
    assert caught.value.code == "voice_not_found"


MANY = {"default": Voice("espeak", {"en": ("de-amy", *(f"en-{index}" for index in range(129)))})}


@pytest.mark.parametrize(
    ("wish", "similar"),
    [
        ("De-Ami", "similar: de-amy; "),
        ("default:de-ami", "similar: de-amy; "),
        ("siren", ""),
        ("x" * 500, ""),
    ],
)
def test_of_many_voices_only_the_similar_ones_are_named(wish: str, similar: str) -> None:
    with pytest.raises(RequestError) as caught:
        choose_voice(MANY, "en", wish)
    assert str(caught.value) == (
        f"no voice {wish[:64]!r}; {similar}allowed: default,"
        " and 130 voices, which GET /v1/audio/voices lists"
    )
    assert caught.value.code == "voice_not_found"


def test_a_language_without_a_voice_is_refused_and_the_allowed_ones_named() -> None:
    with pytest.raises(RequestError, match="no voice speaks 'xx'; allowed: de, en, fr"):
        choose_voice(ENGINES, "xx")


SPEAKERS = Voice("piper", {"en": ("vctk/p1", "espeak/en-gb", "Amy", "amy")})
MANY_SPEAKERS: Mapping[str, Tts] = {"piper": SPEAKERS, "espeak": ESPEAK}


@pytest.mark.parametrize(
    ("name", "ids"),
    [
        ("vctk/p1", ["piper/vctk/p1"]),
        ("piper/vctk/p1", ["piper/vctk/p1"]),
        ("piper:vctk/p1", ["piper/vctk/p1"]),
        ("espeak/en-gb", ["piper/espeak/en-gb"]),  # a plain name means what it always did
        ("espeak:en-gb", ["espeak/en-gb"]),
        ("amy", ["piper/amy"]),
        ("Amy", ["piper/Amy"]),
        ("piper/", []),
        ("/amy", []),
        ("nobody", []),
    ],
)
def test_a_name_with_slashes_is_read_as_a_voice_first(name: str, ids: list[str]) -> None:
    assert [voice.id for voice in find_voices(MANY_SPEAKERS, name)] == ids


def test_voices_are_listed_once_with_their_languages_and_genders() -> None:
    both = Voice("both", {"cmn": ("mei",), "zh": ("mei", "li")})
    both.info = TtsInfo("both", 16_000, both.info.voices, genders={"mei": "female"})
    listed = list_voices({"default": both, "both": both, "piper": PIPER})
    assert [voice.id for voice in listed] == [
        *("both/mei", "both/li", "piper/amy", "piper/joe", "piper/siwis"),
    ]
    assert (listed[0].languages, listed[0].gender) == (("zh", "cmn"), "female")
    assert listed[1].gender is None


def test_every_listed_id_means_its_voice() -> None:
    for voice in list_voices(ENGINES):
        assert find_voices(ENGINES, voice.id) == (voice,)
