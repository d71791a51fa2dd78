"""Keeps responses, so that a later request may continue them. In memory only, and bounded."""

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from core.errors import NotFound
from core.named_key import CALLER_KEY, NamedKey, reaches
from web.openai.responses.fields import Messages

MAX_RESPONSES = 512
"Largest number of responses that are kept; the oldest are forgotten first."
MAX_BYTES = 16 * 1024 * 1024
"Limit of the kept requests and responses, in bytes: a few long conversations with images."


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """One response and the conversation up to its end."""

    body: Mapping[str, Any]
    "The response as the client got it."
    messages: Messages
    "The conversation without instructions, which count for one response only."
    size_bytes: int
    opener: NamedKey | None
    "Named key of the request; None: the owner."


class ResponseStore:
    """The responses of all clients. Each key reaches its own only."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, StoredResponse] = OrderedDict()
        self._bytes = 0

    def keep(
        self, response_id: str, body: Mapping[str, Any], messages: Messages, size_bytes: int
    ) -> None:
        """Keeps a response of the running request. One that is larger than the limit is not
        kept."""
        if size_bytes > MAX_BYTES:
            return
        stored = StoredResponse(body, messages, size_bytes, CALLER_KEY.get())
        self._kept[response_id] = stored
        self._bytes += size_bytes
        while len(self._kept) > MAX_RESPONSES or self._bytes > MAX_BYTES:
            _, dropped = self._kept.popitem(last=False)
            self._bytes -= dropped.size_bytes

    def get(self, response_id: str, param: str | None = None) -> StoredResponse:
        """Returns a response. Raises NotFound response_not_found, also for that of another
        key."""
        found = self._kept.get(response_id)
        if found is None or not reaches(found.opener):
            raise NotFound(
                f"There is no response {response_id[:64]!r}: the server forgets the oldest, and all"
                " of them when it restarts.",
                code="response_not_found",
                param=param,
            )
        return found

    def forget(self, response_id: str) -> None:
        """Forgets a response. Raises NotFound as `get`."""
        found = self.get(response_id)
        del self._kept[response_id]
        self._bytes -= found.size_bytes
