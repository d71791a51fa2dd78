"""Binding of the eSpeak NG C library by ctypes: its voices, and blocking synthesis to a sink."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from ctypes import (
    CDLL,
    CFUNCTYPE,
    POINTER,
    Structure,
    c_char_p,
    c_int,
    c_short,
    c_size_t,
    c_ubyte,
    c_uint,
    c_void_p,
    cast,
    sizeof,
    string_at,
)
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath
from threading import Lock
from typing import Literal

import numpy as np

from core.audio import Pcm
from core.errors import EngineError, EngineMissing
from engines.base import Gender
from engines.tts.espeak.word_times import EspeakEvent

PcmSink = Callable[[Pcm], bool]
"Function that takes the next samples; it returns False to stop the synthesis."

EventSink = Callable[[Sequence[EspeakEvent]], None]
"Function that takes the events within the next samples. It is called before the `PcmSink`."

NORMAL_WORDS_PER_MINUTE = 175
"Speed of eSpeak at factor 1, which is its own default."

_BUFFER_MS = 50
"Audio per callback, and so the longest delay until a cancelled synthesis stops."

# Constants of speak_lib.h.
_AUDIO_OUTPUT_SYNCHRONOUS = 2
_INITIALIZE_DONT_EXIT = 0x8000
_CHARS_UTF8 = 1  # without espeakSSML and espeakPHONEMES: markup in the text has no effect
_POS_CHARACTER = 1
_PARAMETER_RATE = 1
_EE_OK = 0
_EVENT_LIST_END, _EVENT_WORD, _EVENT_END = 0, 1, 5

_GENDERS: Mapping[int, Gender] = {1: "male", 2: "female"}
"Values of `espeak_VOICE.gender`; 0: not stated."

_PREFERRED_NAME = {"en": "en-us"}
"Language -> default voice, where it is not the one that the library ranks first."


class _CVoice(Structure):
    """`espeak_VOICE` of speak_lib.h."""

    _fields_ = (
        ("name", c_char_p),
        ("languages", c_void_p),
        ("identifier", c_char_p),
        ("gender", c_ubyte),
        ("age", c_ubyte),
        ("variant", c_ubyte),
        ("xx1", c_ubyte),
        ("score", c_int),
        ("spare", c_void_p),
    )


class _CEvent(Structure):
    """`espeak_EVENT` of speak_lib.h."""

    _fields_ = (
        ("type", c_int),
        ("unique_identifier", c_uint),
        ("text_position", c_int),  # in characters, from 1
        ("length", c_int),
        ("audio_position", c_int),  # ms since the text's first sample
        ("sample", c_int),
        ("user_data", c_void_p),
        ("id", c_void_p),
    )


_SynthCallback = CFUNCTYPE(c_int, c_void_p, c_int, c_void_p)


@dataclass(frozen=True, slots=True)
class _EspeakVoice:
    """One voice as the library lists it."""

    identifier: str
    "Name by which the library selects the voice; language tags do not always work."
    tags: tuple[tuple[int, str], ...]
    "(rank, language tag), the voice's own tag first; a lower rank is a better match."
    gender: Gender | None


class EspeakLibrary:
    """The loaded C library. Because its state is global, it can synthesise only one text at a time.

    A lock makes `synthesise` safe to call from any thread.
    """

    rate_hz: int
    voices: Mapping[str, tuple[str, ...]]
    "Language (its ISO 639-1 code if there is one) -> voice names, the default first."
    genders: Mapping[str, Gender]
    "Voice name -> gender, where the library states it."

    def __init__(self, library_path: Path, data_path: Path) -> None:
        """Loads and initialises the library. Raises EngineMissing if that fails."""
        try:
            self._c = CDLL(str(library_path))
        except OSError as exc:
            raise EngineMissing("tts", "espeak", f"cannot load {library_path.name}: {exc}") from exc
        self.rate_hz = self._c.espeak_Initialize(
            _AUDIO_OUTPUT_SYNCHRONOUS, _BUFFER_MS, bytes(data_path), _INITIALIZE_DONT_EXIT
        )
        if self.rate_hz <= 0:
            raise EngineMissing("tts", "espeak", "its voice data cannot be loaded")
        self._c.espeak_ListVoices.restype = POINTER(POINTER(_CVoice))
        self._voices = _name_voices(v for v in self._list_voices() if _has_dictionary(v, data_path))
        self.voices = _voices_by_language(self._voices)
        self.genders = {name: v.gender for name, v in self._voices.items() if v.gender}
        self._variants = frozenset(path.name for path in (data_path / "voices" / "!v").iterdir())
        self._lock = Lock()
        self._sink: PcmSink | None = None
        self._on_events: EventSink | None = None
        self._callback = _SynthCallback(self._receive)  # C holds it: it must outlive every call
        self._c.espeak_SetSynthCallback(self._callback)

    def has_voice(self, voice: str) -> bool:
        """Returns True for the name of a voice, also with a suffix for its timbre: `en-gb+f3`."""
        base, plus, variant = voice.partition("+")
        return base in self._voices and (not plus or variant in self._variants)

    def synthesise(
        self,
        text: str,
        voice: str,
        words_per_minute: int,
        sink: PcmSink,
        on_events: EventSink | None = None,
    ) -> None:
        """Synthesises `text` into `sink`; blocks, from any thread. Raises EngineError."""
        if not self.has_voice(voice):
            raise EngineError("tts", "espeak", f"no voice {voice!r}")
        base, plus, variant = voice.partition("+")
        selected = f"{self._voices[base].identifier}{plus}{variant}".encode()
        data = text.encode("utf-8", "replace")
        with self._lock:
            self._sink, self._on_events = sink, on_events
            try:
                status = self._c.espeak_SetVoiceByName(selected)
                if status == _EE_OK:
                    self._c.espeak_SetParameter(_PARAMETER_RATE, words_per_minute, 0)
                    status = self._synth(data)
            finally:
                self._sink = self._on_events = None
        if status != _EE_OK:
            raise EngineError(
                "tts", "espeak", f"its library failed with status {status} for voice {voice!r}"
            )

    def _synth(self, data: bytes) -> int:
        size = c_size_t(len(data) + 1)
        status: int = self._c.espeak_Synth(
            data, size, 0, _POS_CHARACTER, 0, _CHARS_UTF8, None, None
        )
        return status

    def _receive(self, samples: int | None, count: int, events: int | None) -> int:
        """Takes samples and events from C; returns 0 to go on, 1 to stop.

        The last call has no samples.
        """
        if events and self._on_events is not None:
            self._on_events(tuple(_read_events(events)))
        if not samples or count <= 0 or self._sink is None:
            return 0
        pcm: Pcm = np.ctypeslib.as_array(
            cast(samples, POINTER(c_short)), (count,)
        ).copy()  # the library reuses its buffer
        return 0 if self._sink(pcm) else 1

    def _list_voices(self) -> Iterator[_EspeakVoice]:
        for pointer in self._c.espeak_ListVoices(None):
            if not pointer:
                return
            voice = pointer.contents
            yield _EspeakVoice(
                voice.identifier.decode(),
                tuple(_read_tags(voice.languages)),
                _GENDERS.get(voice.gender),
            )


@cache
def espeak_library() -> EspeakLibrary:
    """Returns the only library of this process, because its C state is global.

    Raises EngineMissing.
    """
    from espeakng_loader import get_data_path, get_library_path

    return EspeakLibrary(Path(get_library_path()), Path(get_data_path()))


def _read_tags(address: int) -> Iterator[tuple[int, str]]:
    """Yields (rank, tag) of a C list: a rank byte and a NUL-terminated tag each, until rank 0."""
    while rank := c_ubyte.from_address(address).value:
        tag = string_at(address + 1)
        yield rank, tag.decode().lower()
        address += len(tag) + 2


def _read_events(address: int) -> Iterator[EspeakEvent]:
    """Yields the word and end events of a C list, which an event of type 0 ends."""
    while (event := _CEvent.from_address(address)).type != _EVENT_LIST_END:
        if event.type in {_EVENT_WORD, _EVENT_END}:
            kind: Literal["word", "end"] = "word" if event.type == _EVENT_WORD else "end"
            yield EspeakEvent(kind, event.text_position - 1, event.audio_position)
        address += sizeof(_CEvent)


def _has_dictionary(voice: _EspeakVoice, data_path: Path) -> bool:
    """Returns True if the dictionary of one of a voice's languages is installed. Some listed voices
    have none."""
    languages = {tag.partition("-")[0] for _, tag in voice.tags}
    return any((data_path / f"{language}_dict").exists() for language in languages)


def _name_voices(voices: Iterable[_EspeakVoice]) -> Mapping[str, _EspeakVoice]:
    """Returns name -> voice. The name is the voice's own tag.

    If two voices share a tag, the later one is named after its file.
    """
    named: dict[str, _EspeakVoice] = {}
    for voice in voices:
        tag, file_name = voice.tags[0][1], PurePosixPath(voice.identifier).name.lower()
        named[file_name if tag in named else tag] = voice
    return named


def _voices_by_language(voices: Mapping[str, _EspeakVoice]) -> Mapping[str, tuple[str, ...]]:
    ranked: dict[str, list[tuple[int, str]]] = {}
    for name, voice in voices.items():
        for language, rank_in_language in _language_ranks(voice).items():
            rank_in_language = -1 if name == _PREFERRED_NAME.get(language) else rank_in_language
            ranked.setdefault(language, []).append((rank_in_language, name))
    return {language: tuple(name for _, name in sorted(ranked[language])) for language in ranked}


def _language_ranks(voice: _EspeakVoice) -> Mapping[str, int]:
    """Returns language -> the voice's rank among the voices of that language.

    A tag for a language comes before a tag for one of its regions. Besides the voice's first
    language only two-letter codes count (`cmn` is also `zh`).
    """
    ranks: dict[str, int] = {}
    for rank, tag in voice.tags:
        language = tag.partition("-")[0]
        rank_in_language = rank if tag == language else 100 + rank
        ranks[language] = min(rank_in_language, ranks.get(language, rank_in_language))
    first_language = next(iter(ranks))
    return {
        language: rank_in_language
        for language, rank_in_language in ranks.items()
        if language in (first_language, language[:2])
    }
