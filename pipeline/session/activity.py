"""What a session does just now."""

from pipeline.conversation.items import ConversationItems
from pipeline.playout.client_clock import ClientPlayoutClock
from pipeline.playout.playout import Playout
from pipeline.response.queue import ResponseQueue
from pipeline.user_turn.controller import UserTurnController


class SessionActivity:
    """One session's."""

    def __init__(
        self,
        listening: UserTurnController,
        items: ConversationItems,
        answering: ResponseQueue,
        playout: Playout,
        client: ClientPlayoutClock,
    ) -> None:
        self._listening, self._items, self._answering = listening, items, answering
        self._playout, self._client = playout, client

    @property
    def is_hearing(self) -> bool:
        """Somebody speaks, or what was said is not known yet."""
        return self._listening.is_active or self._items.is_transcribing

    @property
    def is_answering(self) -> bool:
        """An answer is made or played."""
        return self._answering.is_working or self._playout.writer is not None

    @property
    def answered_until(self) -> float:
        """When the client has played all that it was sent; monotonic seconds."""
        return self._client.until
