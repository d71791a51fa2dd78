"""Answer to Wyoming's request `describe`, with every key that a client requires."""

from collections.abc import Iterator

from wyoming.info import (
    AsrModel,
    AsrProgram,
    Attribution,
    HandleModel,
    HandleProgram,
    Info,
    TtsProgram,
    TtsVoice,
    WakeModel,
    WakeProgram,
)

from engines.base.wake import WakeWordEngine, wake_words
from pipeline.services import EngineSet
from pipeline.speech.voices import EngineVoice, list_voices

NAME = "earshot"
"Name of all services; Home Assistant shows it."

_BY = Attribution(name="Earshot", url="")


def info_of(engines: EngineSet, version: str) -> Info:
    """Describes the available services; no model is loaded for it."""
    return Info(
        asr=[_asr(engines, version)],
        tts=[_tts(engines, version)],
        handle=[_handle(engines, version)],
        wake=[_wake(engines.wake, version)] if engines.wake and wake_words(engines.wake) else [],
    )


def _asr(engines: EngineSet, version: str) -> AsrProgram:
    """Describes recognition. The client's own voice activity detection has to end an utterance."""
    models = [
        AsrModel(
            name=name,
            description=f"{recogniser.info.name}: {recogniser.info.model}",
            attribution=_BY,
            installed=True,
            version=version,
            languages=list(recogniser.info.languages),
        )
        for name, recogniser in engines.recognisers().items()
    ]
    return AsrProgram(
        name=NAME,
        description="Earshot hears",
        attribution=_BY,
        installed=True,
        version=version,
        models=models,
        supports_transcript_streaming=True,
        requires_external_vad=True,
    )


def _tts(engines: EngineSet, version: str) -> TtsProgram:
    voices = [
        TtsVoice(
            name=name,
            description=f"{voice.engine}: {voice.name}",
            attribution=_BY,
            installed=True,
            version=version,
            languages=list(voice.languages),
        )
        for name, voice in _voices(engines)
    ]
    return TtsProgram(
        name=NAME,
        description="Earshot speaks",
        attribution=_BY,
        installed=True,
        version=version,
        voices=voices,
        supports_synthesize_streaming=True,
    )


def _voices(engines: EngineSet) -> Iterator[tuple[str, EngineVoice]]:
    """Yields each voice with the name under which clients choose it: its own, or its id if a
    preferred engine has a voice of that name."""
    names: set[str] = set()
    for voice in list_voices(engines.tts):
        yield (voice.id if voice.name in names else voice.name), voice
        names.add(voice.name)


def _handle(engines: EngineSet, version: str) -> HandleProgram:
    """Describes the assistant, which can control the home with its skills."""
    llm = engines.language_model("default")
    languages = list(llm.languages or engines.languages())
    return HandleProgram(
        name=NAME,
        description="Earshot answers",
        attribution=_BY,
        installed=True,
        version=version,
        models=[
            HandleModel(
                name=llm.name,
                description=llm.name,
                attribution=_BY,
                installed=True,
                version=version,
                languages=languages,
            )
        ],
        supports_handled_streaming=True,
        supports_home_control=True,
    )


def _wake(engine: WakeWordEngine, version: str) -> WakeProgram:
    models = [
        WakeModel(
            name=word.name,
            description=word.phrase,
            attribution=_BY,
            installed=True,
            version=version,
            languages=list(word.languages),
            phrase=word.phrase,
        )
        for word in wake_words(engine)
    ]
    return WakeProgram(
        name=NAME,
        description="Earshot waits for its word",
        attribution=_BY,
        installed=True,
        version=version,
        models=models,
    )
