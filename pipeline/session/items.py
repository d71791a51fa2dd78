"""The conversation's items as a client handles them, and what is said in those it adds."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from core.audio import ASR_RATE_HZ, Pcm, samples_to_ms
from core.errors import Conflict, EarshotError, EngineError, OverloadedError, RequestError
from core.events import (
    ItemAdded,
    ItemDeleted,
    ItemDone,
    ItemRetrieved,
    SessionEvent,
    TranscriptionCompleted,
    TranscriptionFailed,
)
from core.ids import new_id
from core.items import (
    AudioPart,
    ImagePart,
    Item,
    ItemReference,
    McpApprovalResponseItem,
    MessageItem,
)
from engines.base import Llm, VisionLlm
from pipeline.conversation.conversation import Conversation
from pipeline.services import SessionServices
from pipeline.shared.settings import SessionSettings
from pipeline.shared.turn import Turn, TurnMark
from pipeline.transcription.stream import TranscriptStream
from pipeline.user_turn.events import InputActivity

logger = logging.getLogger(__name__)

MAX_WAITING = 8
"Items whose audio is not recognised yet; one after another, so that live speech has its turn."


Recordings: TypeAlias = Mapping[int, Pcm]
"""Part of an item -> what is said there, 16 kHz."""
NO_RECORDINGS: Recordings = {}


class ConversationItems:
    """One session's."""

    def __init__(
        self,
        conversation: Conversation,
        surroundings: SessionServices,
        settings: Callable[[], SessionSettings],
        emit: Callable[[SessionEvent], None],
    ) -> None:
        self._conversation, self._history = conversation, conversation.history
        self._engines, self._clock = surroundings.engines, surroundings.clock
        self._settings, self._emit = settings, emit
        self.on_known: Callable[[Turn, EarshotError | None], None] = lambda *_: None
        "Told when all that is said in an item is known, or will not be."
        self.on_decision: Callable[[McpApprovalResponseItem], Callable[[], None]]
        "Told what the client says to a call; gives what is to be done once that is in the list."
        self._waiting = 0
        self._turns: dict[str, Turn] = {}
        "Of the items in which words are still looked for. A deleted one's id may come again."
        self._alone = asyncio.Lock()

    @property
    def is_transcribing(self) -> bool:
        return self._waiting > 0

    def add(
        self,
        item: Item,
        previous_item_id: str | None,
        recordings: Recordings,
        tasks: asyncio.TaskGroup | None,
    ) -> None:
        """`tasks`: None when the session ends: what is said is of no use then. Raises RequestError
        item_already_exists, item_not_found, invalid_value, unsupported_content; Conflict
        too_many_recordings."""
        self.check_seen([item], "item")
        if recordings and self._waiting >= MAX_WAITING:
            raise Conflict(
                f"the audio of {MAX_WAITING} items is being recognised already: wait for its words",
                code="too_many_recordings",
            )
        go_on = self.on_decision(item) if isinstance(item, McpApprovalResponseItem) else None
        previous = self._history.add(item, previous_item_id)
        self._emit(ItemAdded(item, previous))
        self._emit(ItemDone(item, previous))
        if go_on is not None:
            go_on()
        if recordings and tasks is not None:
            self._waiting += 1
            turn = self._turns[item.id] = Turn(new_id("turn"), item.id)
            turn.mark(TurnMark.SPEECH_END, self._clock.now())
            work = self._recognise(turn, item.id, recordings, tasks)
            tasks.create_task(work, name=f"transcribe-{item.id}")

    def delete(self, item_id: str) -> None:
        """Raises RequestError item_not_found."""
        self._history.delete(item_id)
        self._turns.pop(item_id, None)
        self._emit(ItemDeleted(item_id))

    def retrieve(self, item_id: str) -> None:
        """Raises RequestError item_not_found."""
        self._emit(ItemRetrieved(self._history.shown(item_id)))

    def check_seen(self, items: Sequence[Item | ItemReference], param: str) -> None:
        """Images are for models that see. Raises RequestError unsupported_content."""
        for index, item in enumerate(items):
            if not isinstance(item, MessageItem) or not item.images:
                continue
            llm = self._engines.language_model(self._settings().llm)
            if not _sees(llm):
                at = next(n for n, part in enumerate(item.parts) if isinstance(part, ImagePart))
                where = param if param == "item" else f"{param}[{index}]"
                raise RequestError(
                    f"'{where}.content[{at}]' is an image, and the language model {llm.name!r} "
                    "does not see. Allowed: input_text, input_audio.",
                    code="unsupported_content",
                    param=f"{where}.content[{at}].type",
                )

    async def _recognise(
        self, turn: Turn, item_id: str, recordings: Recordings, tasks: asyncio.TaskGroup
    ) -> None:
        error: EarshotError | None = None
        try:
            async with self._alone:
                for index, pcm in recordings.items():
                    if self._is_there(turn):
                        error = await self._hear(turn, item_id, index, pcm, tasks) or error
        finally:
            self._waiting -= 1
            if self._is_there(turn):
                del self._turns[item_id]
            else:
                error = None
        turn.mark(TurnMark.ASR_FINAL, self._clock.now())
        self.on_known(turn, error)

    async def _hear(
        self, turn: Turn, item_id: str, index: int, pcm: Pcm, tasks: asyncio.TaskGroup
    ) -> EarshotError | None:
        """As a committed buffer is heard, by the settings of the moment. Of an item that is deleted
        meanwhile nothing is told."""
        settings = self._settings()
        recogniser = self._engines.recogniser(settings.asr)
        options = settings.recognition(recogniser.info, self._engines.expected())
        utterance = TranscriptStream(recogniser, new_id("item"), options, self._clock, tasks)
        try:
            self._engines.check_hears(settings)
            for at in range(0, len(pcm), ASR_RATE_HZ):
                utterance.push(pcm[at : at + ASR_RATE_HZ])
            result = await utterance.finish()
        except (EngineError, OverloadedError, RequestError) as exc:
            utterance.discard()
            logger.warning("! item %s: %s (%s)", item_id, exc, exc.code)
            if self._is_there(turn):
                self._emit(TranscriptionFailed(item_id, exc.code, str(exc), index))
            return exc
        except asyncio.CancelledError:
            utterance.discard()
            raise
        if not self._is_there(turn):
            return None
        self._write(item_id, index, result.text)
        if result.text:
            self._conversation.language = result.language
        audio_s = round(samples_to_ms(len(pcm), ASR_RATE_HZ) / 1000, 3)
        logprobs = tuple((token.data, token.logprob) for token in result.tokens) or None
        told = TranscriptionCompleted(
            item_id, result.text, audio_s, result.language, logprobs, index
        )
        self._emit(told)
        return None

    def _is_there(self, turn: Turn) -> bool:
        return turn.item_id is not None and self._turns.get(turn.item_id) is turn

    def _write(self, item_id: str, index: int, words: str) -> None:
        item = self._history.find(item_id)
        if isinstance(item, MessageItem):  # it may have gone with the oldest
            parts = (*item.parts[:index], AudioPart(words), *item.parts[index + 1 :])
            self._history.replace(replace(item, parts=parts))


class SessionInputActivity:
    """Whatever the session listens to, as one."""

    def __init__(self, listening: InputActivity, items: ConversationItems) -> None:
        self._listening, self._items = listening, items

    @property
    def is_speaking(self) -> bool:
        return self._listening.is_speaking

    @property
    def is_transcribing(self) -> bool:
        return self._listening.is_transcribing or self._items.is_transcribing


def _sees(llm: Llm) -> bool:
    return isinstance(llm, VisionLlm) and llm.sees
