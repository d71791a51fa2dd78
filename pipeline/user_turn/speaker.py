"""Recognises the speaker of each utterance at its pauses, while it is decoded. No answer waits for
it."""

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from core.audio import ASR_RATE_HZ, Pcm, ms_to_samples
from core.conversation.events import SessionEvent, SpeakerRecognised
from core.conversation.speakers import HeardVoice, SpeakerMatch
from core.errors import EngineError, OverloadedError, StorageError
from pipeline.conversation.conversation import Conversation
from pipeline.shared.turn import Turn
from pipeline.user_turn.utterance import OpenUtterance
from serving.speaker.model import SpeakerPriority
from serving.speaker.recognition import SpeakerRecognition, vector_of

logger = logging.getLogger(__name__)

MAX_HEARD_MS = 4000
"""Longest part of an utterance by which the speaker is recognised, counted from its end. A longer
part costs more and makes the result hardly surer."""


MAX_CONFIRMED_MS = 20_000
"""Longest utterance that is compared for a guard. A command is shorter, and each part of it takes
some 30 ms of a core while the user waits."""


class SpeakerListener:
    """Recognises the speakers of one session. Does nothing while its key knows no voice."""

    def __init__(
        self,
        recognition: SpeakerRecognition | None,
        conversation: Conversation,
        emit: Callable[[SessionEvent], None],
        tasks: asyncio.TaskGroup,
    ) -> None:
        """`recognition`: None if nothing is to be recognised. `conversation`: the people of its
        owner are compared, and its last speaker is set."""
        self._recognition, self._conversation = recognition, conversation
        self._key = conversation.owner
        self._emit, self._tasks = emit, tasks

    def begin(self, utterance: OpenUtterance) -> None:
        """Begins to recognise the speaker of all speech so far, as the utterance may be over."""
        self.drop(utterance)
        if self._recognition is None:
            return
        if people := self._recognition.count_people(self._key):
            pcm = utterance.record.own_pcm()[-ms_to_samples(MAX_HEARD_MS, ASR_RATE_HZ) :]
            work = self._recognise(self._recognition, utterance.turn, pcm, is_one_of=people)
            name = f"speaker-{utterance.stream.id}"
            utterance.speaker_task = self._tasks.create_task(work, name=name)

    def drop(self, utterance: OpenUtterance) -> None:
        """Drops what was recognised, because the speech goes on."""
        if utterance.speaker_task is not None:
            utterance.speaker_task.cancel()
            utterance.speaker_task = None
        turn = utterance.turn
        turn.speaker, turn.prompt_name = None, ""
        turn.person_id, turn.is_speaker_fixed = None, False

    def report(self, utterance: OpenUtterance) -> None:
        """Reports who spoke once it is known. The utterance is committed now."""
        sound: Pcm | None = None
        if self._recognition is not None:
            # The sound includes the earlier speech that the utterance continues: a guest may have
            # said it. The silence at the end is left out, or the last part would have too little
            # speech.
            last = None if utterance.end is None else utterance.end - utterance.start
            pcm = utterance.record.audio.pcm(0)[:last]
            if len(pcm) <= ms_to_samples(MAX_CONFIRMED_MS, ASR_RATE_HZ):
                sound = pcm
                utterance.turn.confirm_voice = partial(self._confirm, self._recognition, pcm)
                utterance.turn.hear_voice = partial(self._hear, self._recognition, pcm)
        if utterance.speaker_task is None:
            self.begin(utterance)  # push to talk, without a pause before the end
        if (task := utterance.speaker_task) is not None:
            work = self._report(task, utterance.turn, utterance.stream.id, sound)
            self._tasks.create_task(work, name=f"speaker-report-{utterance.stream.id}")

    async def _hear(self, recognition: SpeakerRecognition, pcm: Pcm) -> HeardVoice | None:
        """Returns the voice; None also if the model fails."""
        try:
            model, result = await recognition.listen(pcm, SpeakerPriority.ENROLMENT)
        except (EngineError, OverloadedError) as error:
            logger.warning("! a voice cannot be learned: %s", error)
            return None
        vector = vector_of(result)
        return None if vector is None else HeardVoice(model, vector, result.quality.speech_ms)

    async def _confirm(self, recognition: SpeakerRecognition, pcm: Pcm) -> SpeakerMatch | None:
        """Returns the person who surely spoke; None also if the model fails."""
        if not recognition.count_people(self._key):
            return None
        try:
            return await recognition.confirm(pcm, self._key)
        except (EngineError, OverloadedError) as error:
            logger.warning("! the speaker cannot be confirmed: %s", error)
            return None

    async def _report(
        self, task: asyncio.Task[bool], turn: Turn, item_id: str, sound: Pcm | None
    ) -> None:
        """Reports the speaker. sound: the utterance, which may be added to the person's voice;
        None: it is too long for that."""
        await asyncio.wait([task])
        if task.cancelled() or not task.result():
            return
        caller_id = self._conversation.place.caller_id
        self._conversation.person_id = turn.speaker.id if turn.speaker else caller_id
        self._emit(SpeakerRecognised(item_id, turn.speaker))
        if self._recognition is None or turn.speaker is None or sound is None:
            return
        try:
            await self._recognition.follow(sound, self._key, turn.speaker.id)
        except (EngineError, OverloadedError, StorageError) as error:
            logger.warning("! a known voice cannot be followed: %s", error)

    async def _recognise(
        self, recognition: SpeakerRecognition, turn: Turn, pcm: Pcm, *, is_one_of: int
    ) -> bool:
        """Sets the speaker of the turn. Returns False if the voice could not be compared: there was
        too little speech, or the model failed."""
        try:
            match, result = await recognition.compare(pcm, self._key, SpeakerPriority.TURN)
        except (EngineError, OverloadedError) as error:
            logger.warning("! the speaker cannot be recognised: %s", error)
            return False
        turn.speaker = match
        if result.vector and not turn.is_speaker_fixed:
            # An unknown voice on the telephone keeps the settings of the person who calls.
            turn.person_id = match.id if match else self._conversation.place.caller_id
            turn.prompt_name = match.name if match and is_one_of > 1 else ""
        return bool(result.vector)
