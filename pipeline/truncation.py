"""A client tells how much of an answer it played: the answer is cut to what was heard."""

from core.errors import RequestError
from pipeline.answer import Answer
from pipeline.history import History


def truncate(answer: Answer | None, history: History, item_id: str, audio_end_ms: int) -> None:
    """`answer`: the one that made the item, if it is known. Raises RequestError item_not_found,
    invalid_value."""
    if answer is None or (answer.in_conversation and history.find(item_id) is None):
        raise RequestError(
            f"item {item_id!r} is no recent spoken answer", code="item_not_found", param="item_id"
        )
    if not 0 <= audio_end_ms <= answer.total_ms:
        raise RequestError(
            f"audio_end_ms {audio_end_ms} is not within 0 to {answer.total_ms:.0f} ms of audio",
            code="invalid_value",
            param="audio_end_ms",
        )
    answer.truncate(audio_end_ms)
