"""Recognises the speaker of a recording among people who have taught the server their voices."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from core.access.named_key import NamedKey
from core.audio import ASR_RATE_HZ, Pcm, samples_to_ms
from core.conversation.speakers import (
    HeardVoice,
    SpeakerMatch,
    SpeakerProfile,
    VoiceThresholds,
    VoiceVector,
    confirmed_speaker,
    nearest_speaker,
)
from core.errors import EngineMissing
from engines.base.speaker import SpeakerItem, SpeakerResult
from serving.speaker.model import GE2E, ServedSpeakerModel, SpeakerModels, SpeakerPriority

GUARD_PART_MS = 2000
"""Length of the parts of an utterance that a guard compares. Shorter parts have too little speech
for a comparison; in longer ones the words of another person would not be noticed."""


AUTO = "auto"
"Setting of the model that leaves the choice to the server."

FOLLOWED_SPEECH_MS = 3000
"Least speech of an utterance that is added to a voice. A vector of less is less sure."


class VoiceDirectory(Protocol):
    """Knows the voices of people."""

    def count_people(self, key: NamedKey | None, model: str) -> int:
        """Returns the number of people whose voices the sessions of a key know by `model`."""
        ...

    def profiles(
        self, key: NamedKey | None, model: str, *, taught_only: bool = False
    ) -> Sequence[SpeakerProfile]:
        """Returns the voices that the sessions of a key know, with the vectors of `model`. `key`:
        None for the owner's key and for devices. `taught_only`: without the recordings that the
        server added by itself."""
        ...

    def wants_sample(self, speaker_id: str) -> bool:
        """Returns whether the server follows the voice of this person, and a new recording is
        due."""
        ...

    async def follow(self, speaker_id: str, voice: HeardVoice) -> None:
        """Adds a recording to those of a person whose voice the server follows. Raises
        StorageError."""
        ...


class RecordingVoices:
    """Turns the voices of one recording into vectors, all by the same model."""

    def __init__(
        self,
        model: ServedSpeakerModel,
        profiles: Sequence[SpeakerProfile],
        thresholds: VoiceThresholds,
    ) -> None:
        self._model = model
        self.profiles = profiles
        "People whose voices the key of the request knows."
        self.thresholds = thresholds
        "Scores from which two vectors count as one voice."

    async def vector(self, pcm: Pcm) -> VoiceVector | None:
        """Returns the vector of a voice; None if there is too little speech.

        `pcm`: 16 kHz. Raises EngineError, OverloadedError.
        """
        item = SpeakerItem(pcm.astype("<i2", copy=False).tobytes())
        return vector_of(await self._model.compute(item, SpeakerPriority.RECORDING))


@dataclass(frozen=True, slots=True)
class SpeakerSettings:
    """Choice of the model that recognises speakers, and of the scores that count."""

    model: str = AUTO
    "Name of the model; AUTO: GE2E if it is there, or else the first one."
    threshold: float | None = None
    "Score from which a voice counts as known; None: that of the engine."
    guard_threshold: float | None = None
    "Score from which a voice may use what a guard protects; None: that of the engine."


DEFAULT_SETTINGS = SpeakerSettings()


class SpeakerRecognition:
    """Compares recordings with known voices, by one model of the models folder.

    Voices that were learned by another model are not compared: their vectors mean something else.
    Nothing is loaded or computed as long as the model knows no voice.
    """

    def __init__(
        self,
        models: SpeakerModels,
        voices: VoiceDirectory,
        settings: SpeakerSettings = DEFAULT_SETTINGS,
    ) -> None:
        self._models, self._voices, self._settings = models, voices, settings

    @property
    def model_name(self) -> str | None:
        """Name of the model by which voices are learned now; None if there is none."""
        model = self._model()
        return None if model is None else model.offer.name

    @property
    def thresholds(self) -> VoiceThresholds:
        """Scores that count with the present model. Raises EngineMissing if there is none."""
        return self._thresholds(self._usable_model())

    def count_people(self, key: NamedKey | None) -> int:
        """Returns the number of people whose voices the sessions of a key know; 0 if there is no
        model that could recognise them."""
        model = self._model()
        return 0 if model is None else self._voices.count_people(key, model.offer.name)

    @contextmanager
    def hold(self, key: NamedKey | None) -> Iterator[None]:
        """Keeps the model in memory while the context is open, if the sessions of the key know any
        voice."""
        model = self._model()
        if model is None or not self._voices.count_people(key, model.offer.name):
            yield
            return
        with model.hold():
            yield

    @contextmanager
    def open_recording(self, key: NamedKey | None) -> Iterator[RecordingVoices]:
        """Opens the model for the many vectors of one recording, and keeps it in memory meanwhile.
        Raises EngineMissing if there is no model."""
        model = self._usable_model()
        with model.hold():
            profiles = self._voices.profiles(key, model.offer.name)
            yield RecordingVoices(model, profiles, self._thresholds(model))

    async def listen(self, pcm: Pcm, priority: SpeakerPriority) -> tuple[str, SpeakerResult]:
        """Returns the name of the model, and the vector and the quality of a recording.

        `pcm`: 16 kHz. Raises EngineMissing if there is no model, EngineError, OverloadedError.
        """
        model = self._usable_model()
        item = SpeakerItem(pcm.astype("<i2", copy=False).tobytes())
        return model.offer.name, await model.compute(item, priority)

    async def compare(
        self,
        pcm: Pcm,
        key: NamedKey | None,
        priority: SpeakerPriority,
        threshold: float | None = None,
    ) -> tuple[SpeakerMatch | None, SpeakerResult]:
        """Returns the person who speaks, None for a guest and for too little speech; and the
        vector with the quality of the recording.

        `pcm`: 16 kHz. `threshold`: score from which a voice is known; None: that of the model.
        Raises EngineMissing if there is no model, EngineError, OverloadedError.
        """
        model, result = await self.listen(pcm, priority)
        vector = vector_of(result)
        if vector is None:
            return None, result
        least = self.thresholds.known if threshold is None else threshold
        return nearest_speaker(vector, self._voices.profiles(key, model), least), result

    async def confirm(self, pcm: Pcm, key: NamedKey | None) -> SpeakerMatch | None:
        """Returns the person who surely spoke all of a recording; None in any doubt.

        `pcm`: 16 kHz. Raises EngineMissing if there is no model, EngineError, OverloadedError.
        """
        return await self._confirm(pcm, key, SpeakerPriority.TURN, taught_only=False)

    async def _confirm(
        self, pcm: Pcm, key: NamedKey | None, priority: SpeakerPriority, *, taught_only: bool
    ) -> SpeakerMatch | None:
        heard = [await self.listen(part, priority) for part in guard_parts(pcm)]
        parts = [vector for _, result in heard if (vector := vector_of(result)) is not None]
        if not parts:
            return None
        profiles = self._voices.profiles(key, heard[0][0], taught_only=taught_only)
        return confirmed_speaker(parts, profiles, self.thresholds)

    async def follow(self, pcm: Pcm, key: NamedKey | None, speaker_id: str) -> None:
        """Adds the voice of an utterance to those of this person, if the person wants that, and all
        of it surely is the voice that the person taught.

        `pcm`: 16 kHz. Raises EngineMissing if there is no model, EngineError, OverloadedError,
        StorageError.
        """
        if not self._voices.wants_sample(speaker_id):
            return
        model, result = await self.listen(pcm, SpeakerPriority.RECORDING)
        vector, speech_ms = vector_of(result), result.quality.speech_ms
        if vector is None or speech_ms < FOLLOWED_SPEECH_MS:
            return
        sure = await self._confirm(pcm, key, SpeakerPriority.RECORDING, taught_only=True)
        if sure is not None and sure.id == speaker_id:
            await self._voices.follow(speaker_id, HeardVoice(model, vector, speech_ms))

    def _thresholds(self, model: ServedSpeakerModel) -> VoiceThresholds:
        own = model.info.thresholds
        known, guard = self._settings.threshold, self._settings.guard_threshold
        return replace(
            own,
            known=own.known if known is None else known,
            guard=own.guard if guard is None else guard,
        )

    def _usable_model(self) -> ServedSpeakerModel:
        if (model := self._model()) is not None:
            return model
        name = self._settings.model
        if name == AUTO:
            why = (
                "there is no model that recognises speakers; `earshot models pull ge2e` fetches one"
            )
            raise EngineMissing("speaker", GE2E, why)
        found = self._models.get(name)
        why = f"cannot be used: {found.problem}" if found else "is not in the models folder"
        raise EngineMissing("speaker", name, f"speakers.model: {name!r} {why}")

    def _model(self) -> ServedSpeakerModel | None:
        if self._settings.model != AUTO:
            chosen = self._models.get(self._settings.model)
            return None if chosen is None or chosen.problem is not None else chosen
        usable = [model for name in self._models if (model := self._models.get(name))]
        first = min(usable, key=lambda model: model.offer.engine != GE2E, default=None)
        # Asking by name finds a model that was pulled since the start.
        return first or self._models.get(GE2E)


def guard_parts(pcm: Pcm) -> Sequence[Pcm]:
    """Returns a recording in parts of about GUARD_PART_MS, which are compared one by one."""
    count = max(1, round(samples_to_ms(len(pcm), ASR_RATE_HZ) / GUARD_PART_MS))
    return np.array_split(pcm, count) if len(pcm) else ()


def vector_of(result: SpeakerResult) -> VoiceVector | None:
    """Returns the vector of a result; None if there was too little speech."""
    return np.frombuffer(result.vector, "<f4").astype(np.float32) if result.vector else None
