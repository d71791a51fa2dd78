"""Finds the voice that a client names: one of this server, or a name of OpenAI's service."""

from collections.abc import Mapping

from engines.base import Tts
from pipeline.shared.settings import DEFAULT
from pipeline.speech.voices import find_voices, unknown_voice_error

_FIRST_VOICES = ("alloy", "echo", "fable", "nova", "onyx", "shimmer")
_LATER_VOICES = ("ash", "ballad", "cedar", "coral", "marin", "sage", "verse")

OPENAI_VOICES = frozenset((*_FIRST_VOICES, *_LATER_VOICES))
"""Names of OpenAI's service. Clients send one because the field is required. Each speaks every
language, so the name says nothing about the language."""


def requested_voice(engines: Mapping[str, Tts], name: str) -> tuple[str | None, str | None]:
    """Returns the voice, in the form that `choose_voice` takes, and its language. None: the client
    leaves the choice to the server.

    name: a voice, as for `find_voices`, or an engine. Raises RequestError voice_not_found.
    """
    if voices := find_voices(engines, name):
        voice = voices[0]
        return name, None if voice.name in OPENAI_VOICES else voice.languages[0]
    if name.lower() in (*OPENAI_VOICES, "", DEFAULT):
        return None, None
    if name in engines:
        return name, None
    raise unknown_voice_error(engines, name)
