"""What a session does just now."""

from pipeline.answering import Answering
from pipeline.client_clock import ClientClock
from pipeline.items import Items
from pipeline.listening import Listening
from pipeline.playout import Playout


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
