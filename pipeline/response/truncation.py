"""An answer is cut to what was heard: a client tells how much it played, or we stop playing."""

from collections.abc import Callable
from math import ceil, floor

from core.errors import RequestError
from core.events import ItemTruncated, SessionEvent
from pipeline.conversation.history import History
from pipeline.playout.playout import PlayoutPacing, PlayoutWriter
from pipeline.response.response import Response


def truncate(answer: Response | None, history: History, item_id: str, audio_end_ms: int) -> None:
    """`answer`: the one that made the item, if it is known. Raises RequestError item_not_found,
    invalid_value."""
    if answer is None or (answer.in_conversation and history.find(item_id) is None):
        raise RequestError(
            f"item {item_id!r} is no recent spoken answer", code="item_not_found", param="item_id"
        )
    total_ms = answer.total_ms
    if not 0 <= audio_end_ms <= ceil(total_ms):
        raise RequestError(
            f"audio_end_ms {audio_end_ms} is not within 0 to {ceil(total_ms)} ms of audio",
            code="invalid_value",
            param="audio_end_ms",
        )
    # Who played all says so in whole ms, rounded up or down; a voice ends between them.
    answer.truncate(total_ms if audio_end_ms >= floor(total_ms) else audio_end_ms)


def truncate_at_playout(
    answer: Response,
    history: History,
    writer: PlayoutWriter,
    paced_by: PlayoutPacing,
    emit: Callable[[SessionEvent], None],
) -> None:
    """Playout of a complete answer stopped. A client that paces itself tells where; another one is
    told, if it knows of the answer still."""
    if paced_by == "server":
        answer.truncate(writer.heard_ms)
        if answer.item_id is not None and history.find(answer.item_id) is not None:
            emit(ItemTruncated(answer.item_id, round(writer.heard_ms)))
