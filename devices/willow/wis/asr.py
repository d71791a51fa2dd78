"""Recognition of a recording while it arrives, with a translation if that is asked for."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import numpy as np

from core.audio import ASR_RATE_HZ, Pcm, samples_to_ms
from core.conversation.ids import new_id
from core.conversation.speakers import SpeakerMatch
from core.errors import EarshotError, PayloadTooLarge
from core.ports import Clock
from core.tasks import single_error
from devices.willow.wis.asr_params import ENGLISH, AsrParams
from devices.willow.wis.voice_auth import HEARD_SAMPLES
from engines.base import AsrOptions
from pipeline.transcription.partials import PartialHypothesis
from pipeline.transcription.recogniser import Recogniser
from pipeline.transcription.recording import RecordingTranscription, Transcriber, Transcript
from pipeline.transcription.stitching import join_texts
from pipeline.transcription.stream import TranscriptStream
from serving.asr.scheduling import DecodePriority


@dataclass(frozen=True, slots=True)
class WisTranscript:
    """Result of a recognition."""

    text: str
    language: str
    audio_ms: float
    "Length of the audio."
    infer_ms: float
    "Time from the last sample to the text: the wait of the speaker."
    translation: str | None = None
    model: str = ""
    "Name of the model that recognised it."
    speaker: SpeakerMatch | None = None
    "Person who spoke; None: it was not asked for."

    @property
    def speedup(self) -> int:
        """Length of the audio divided by `infer_ms`, rounded down as in WIS."""
        return int(self.audio_ms / self.infer_ms) if self.infer_ms > 0 else 0


class WisTranscription:
    """One recognition: call `push` until the audio is over, then `transcript`."""

    def __init__(
        self,
        recordings: list[RecordingTranscription],
        params: AsrParams,
        model: str,
        clock: Clock,
        max_audio_s: float,
    ) -> None:
        self._recordings, self._params, self._model, self._clock = recordings, params, model, clock
        self.max_audio_s = max_audio_s
        self._samples = 0
        self._beginning: list[Pcm] = []

    @property
    def beginning(self) -> Pcm:
        """First HEARD_SAMPLES of the audio, by which the speaker is recognised."""
        return np.concatenate(self._beginning) if self._beginning else np.zeros(0, np.int16)

    @property
    def samples(self) -> int:
        """Number of samples that were pushed so far, at 16 kHz."""
        return self._samples

    async def push(self, pcm: Pcm) -> None:
        """Adds samples, mono at 16 kHz. Raises PayloadTooLarge beyond `max_audio_s`."""
        if self._samples < HEARD_SAMPLES:
            self._beginning.append(pcm[: HEARD_SAMPLES - self._samples])
        self._samples += len(pcm)
        if self._samples > self.max_audio_s * ASR_RATE_HZ:
            limit = f"{self.max_audio_s:g} s, the limit"
            raise PayloadTooLarge(f"audio of more than {limit}", code="audio_too_long")
        if len(pcm):
            for recording in self._recordings:
                await recording.push(pcm)

    async def transcript(self, *, since: float | None = None) -> WisTranscript:
        """Ends the audio and returns the text. Raises EngineError, OverloadedError.

        since: start of `infer_ms`, on the scale of Clock.now(); None: now.
        """
        began = self._clock.now() if since is None else since
        for recording in self._recordings:
            recording.end()
        plain, *others = [await recording.transcript() for recording in self._recordings]
        return WisTranscript(
            plain.text,
            plain.language,
            samples_to_ms(self._samples, ASR_RATE_HZ),
            1000 * (self._clock.now() - began),
            translation=others[0].text if others and self._is_translated(plain) else None,
            model=self._model,
        )

    def _is_translated(self, plain: Transcript) -> bool:
        return not (self._params.returns_english and plain.language == ENGLISH)


@asynccontextmanager
async def open_transcription(
    transcriber: Transcriber,
    params: AsrParams,
    clock: Clock,
    *,
    priority: DecodePriority,
    max_audio_s: float,
) -> AsyncIterator[WisTranscription]:
    """Opens a recognition; leaving the context cancels what is still being recognised.

    Any priority but BATCH means live speech: recognition then uses its pauses.
    """
    is_live = priority is not DecodePriority.BATCH
    wanted = [params.options, *([params.translation] if params.translation else [])]
    async with AsyncExitStack() as stack:
        recordings = [
            await stack.enter_async_context(
                transcriber.open(params.model, options, priority=priority, eager=is_live)
            )
            for options in wanted
        ]
        model = transcriber.name_of(params.model)
        yield WisTranscription(recordings, params, model, clock, max_audio_s)


# Partials while the user speaks, for clients that ask for them; the final text comes separately.


@asynccontextmanager
async def partial_transcripts(
    recogniser: Recogniser,
    options: AsrOptions,
    clock: Clock,
    on_partial: Callable[[str, str], None],
) -> AsyncIterator[Callable[[Pcm], None]]:
    """Yields a function that takes the audio.

    on_partial: called with all words and their stable prefix.

    When the server is busy, partials are the first to be dropped, so there may be none.
    """

    def on_hypothesis(hypothesis: PartialHypothesis, _: int) -> None:
        on_partial(join_texts([hypothesis.stable, hypothesis.unstable]), hypothesis.stable)

    def on_failure(_: EarshotError) -> None:
        pass

    with single_error():
        async with asyncio.TaskGroup() as tasks:
            utterance = TranscriptStream(recogniser, new_id("item"), options, clock, tasks)
            utterance.follow(on_hypothesis, on_failure)
            try:
                yield utterance.push
            finally:
                utterance.discard()
