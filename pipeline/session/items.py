"""Items of the conversation that a client adds, deletes or reads. Audio in added items is
transcribed."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from core.audio import ASR_RATE_HZ, Pcm, samples_to_ms
from core.conversation.events import (
    ItemAdded,
    ItemDeleted,
    ItemDone,
    ItemRetrieved,
    SessionEvent,
    TranscriptionCompleted,
    TranscriptionFailed,
)
from core.conversation.ids import new_id
from core.conversation.items import (
    AudioPart,
    ImagePart,
    Item,
    ItemReference,
    McpApprovalResponseItem,
    MessageItem,
)
from core.errors import Conflict, EarshotError, EngineError, OverloadedError, RequestError
from engines.base import Llm, VisionLlm
from pipeline.conversation.conversation import Conversation
from pipeline.services import SessionServices
from pipeline.shared.settings import SessionSettings
from pipeline.shared.turn import Turn, TurnMark
from pipeline.transcription.stream import TranscriptStream
from pipeline.user_turn.events import InputActivity

logger = logging.getLogger(__name__)

MAX_WAITING = 8
"""Most items whose audio waits for recognition. They are recognised one after another, so that live
speech is not delayed."""


Recordings: TypeAlias = Mapping[int, Pcm]
"Part of an item -> its audio, 16 kHz."
NO_RECORDINGS: Recordings = {}


class ConversationItems:
    """Items of the conversation as the client of one session handles them."""

    def __init__(
        self,
        conversation: Conversation,
        services: SessionServices,
        settings: Callable[[], SessionSettings],
        activity: InputActivity,
        on_transcribed: Callable[[Turn, EarshotError | None], None],
        on_decision: Callable[[McpApprovalResponseItem], Callable[[], None]],
        emit: Callable[[SessionEvent], None],
        tasks: asyncio.TaskGroup,
    ) -> None:
        """Takes the parts of the session.

        activity: its `items_due` is kept up to date. on_transcribed: called when all audio of an
        item is transcribed, or cannot be. on_decision: called with the client's decision about a
        tool call; returns what to do once the decision is in the history.
        """
        self._conversation, self._history = conversation, conversation.history
        self._engines, self._clock = services.engines, services.clock
        self._settings, self._activity = settings, activity
        self._on_transcribed, self._on_decision = on_transcribed, on_decision
        self._emit, self._tasks = emit, tasks
        self._turns: dict[str, Turn] = {}
        """Turns of items that are being transcribed, by item id. The id of a deleted item may be
        used again."""
        self._change_lock = asyncio.Lock()

    def add(
        self,
        item: Item,
        previous_item_id: str | None,
        recordings: Recordings,
    ) -> None:
        """Adds an item, and transcribes its audio.

        Raises RequestError item_already_exists, item_not_found, invalid_value, unsupported_content;
        Conflict too_many_recordings.
        """
        self.check_images_accepted([item], "item")
        if recordings and self._activity.items_due >= MAX_WAITING:
            raise Conflict(
                f"the audio of {MAX_WAITING} items is already being recognised: wait for a"
                " transcript",
                code="too_many_recordings",
            )
        continue_response = (
            self._on_decision(item) if isinstance(item, McpApprovalResponseItem) else None
        )
        previous = self._history.add(item, previous_item_id)
        self._emit(ItemAdded(item, previous))
        self._emit(ItemDone(item, previous))
        if continue_response is not None:
            continue_response()
        if recordings:
            self._activity.items_due += 1
            turn = self._turns[item.id] = Turn(new_id("turn"), item.id)
            turn.mark(TurnMark.SPEECH_END, self._clock.now())
            work = self._recognise(turn, item.id, recordings)
            self._tasks.create_task(work, name=f"transcribe-{item.id}")

    def delete(self, item_id: str) -> None:
        """Deletes an item. Raises RequestError item_not_found."""
        self._history.delete(item_id)
        self._turns.pop(item_id, None)
        self._emit(ItemDeleted(item_id))

    def retrieve(self, item_id: str) -> None:
        """Emits the item as it is now. Raises RequestError item_not_found."""
        self._emit(ItemRetrieved(self._history.shown(item_id)))

    def check_images_accepted(self, items: Sequence[Item | ItemReference], param: str) -> None:
        """Raises RequestError unsupported_content for images when the language model takes none."""
        for index, item in enumerate(items):
            if not isinstance(item, MessageItem) or not item.images:
                continue
            llm = self._engines.language_model(self._settings().llm)
            if not _accepts_images(llm):
                at = next(n for n, part in enumerate(item.parts) if isinstance(part, ImagePart))
                where = param if param == "item" else f"{param}[{index}]"
                raise RequestError(
                    f"'{where}.content[{at}]' is an image, and the language model {llm.name!r} "
                    "does not support images. Allowed: input_text, input_audio.",
                    code="unsupported_content",
                    param=f"{where}.content[{at}].type",
                )

    async def _recognise(self, turn: Turn, item_id: str, recordings: Recordings) -> None:
        """Transcribes the audio of one item, part after part, and calls `on_transcribed`."""
        error: EarshotError | None = None
        try:
            async with self._change_lock:
                for index, pcm in recordings.items():
                    if self._exists(turn):
                        error = await self._transcribe_part(turn, item_id, index, pcm) or error
        finally:
            self._activity.items_due -= 1
            if self._exists(turn):
                del self._turns[item_id]
            else:
                # the item was deleted: a requested response must not fail because of it
                error = None
        turn.mark(TurnMark.ASR_FINAL, self._clock.now())
        self._on_transcribed(turn, error)

    async def _transcribe_part(
        self, turn: Turn, item_id: str, index: int, pcm: Pcm
    ) -> EarshotError | None:
        """Transcribes one part like a committed utterance, with the present settings. If the item
        is deleted meanwhile, nothing is emitted. Returns the error, if any."""
        settings = self._settings()
        recogniser = self._engines.recogniser(settings.asr)
        options = settings.recognition(recogniser.info, self._engines.expected_names())
        clock, tasks = self._clock, self._tasks
        utterance = TranscriptStream(
            recogniser, new_id("item"), options, clock, tasks, before_speech=0
        )
        try:
            self._engines.check_spoken_language(settings)
            for at in range(0, len(pcm), ASR_RATE_HZ):
                utterance.push(pcm[at : at + ASR_RATE_HZ])
            result = await utterance.finish()
        except (EngineError, OverloadedError, RequestError) as exc:
            utterance.discard()
            logger.warning("! item %s: %s (%s)", item_id, exc, exc.code)
            if self._exists(turn):
                self._emit(TranscriptionFailed(item_id, exc.code, str(exc), index))
            return exc
        except asyncio.CancelledError:
            utterance.discard()
            raise
        if not self._exists(turn):
            return None
        self._write(item_id, index, result.text)
        if result.text:
            self._conversation.language = result.language
        audio_s = round(samples_to_ms(len(pcm), ASR_RATE_HZ) / 1000, 3)
        logprobs = tuple((token.data, token.logprob) for token in result.tokens) or None
        completed = TranscriptionCompleted(
            item_id, result.text, audio_s, result.language, logprobs, index
        )
        self._emit(completed)
        return None

    def _exists(self, turn: Turn) -> bool:
        return turn.item_id is not None and self._turns.get(turn.item_id) is turn

    def _write(self, item_id: str, index: int, words: str) -> None:
        item = self._history.find(item_id)
        if isinstance(item, MessageItem):  # it may have been dropped with the oldest items
            parts = (*item.parts[:index], AudioPart(words), *item.parts[index + 1 :])
            self._history.replace(replace(item, parts=parts))


def _accepts_images(llm: Llm) -> bool:
    return isinstance(llm, VisionLlm) and llm.accepts_images
