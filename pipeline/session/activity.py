"""What a session does just now."""

from pipeline.conversation.items import Items
from pipeline.playout.client_clock import ClientClock
from pipeline.playout.playout import Playout
from pipeline.response.queue import Answering
from pipeline.user_turn.controller import Listening


class Activity:
    """One session's."""

    def __init__(
        self,
        listening: Listening,
        items: Items,
        answering: Answering,
        playout: Playout,
        client: ClientClock,
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
