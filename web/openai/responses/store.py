"""Keeps responses, so that a later request may continue them. In memory only, and bounded."""

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from core.access.named_key import CALLER_KEY, NamedKey, reaches
from core.errors import NotFound
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
        self._response_ids: dict[str, str] = {}
        "The response of each kept item, by the item's id."
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
        self._response_ids.update((item["id"], response_id) for item in body["output"])
        self._bytes += size_bytes
        while len(self._kept) > MAX_RESPONSES or self._bytes > MAX_BYTES:
            self._drop(next(iter(self._kept)))

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
        self.get(response_id)
        self._drop(response_id)

    def item(self, item_id: str, param: str) -> Mapping[str, Any]:
        """Returns an item of a kept response's output. Raises NotFound item_not_found, also for
        that of another key."""
        found = self._kept.get(self._response_ids.get(item_id, ""))
        if found is None or not reaches(found.opener):
            raise NotFound(
                f"There is no item {item_id[:64]!r}: the server keeps the output of the newest"
                " responses with store; send the item itself.",
                code="item_not_found",
                param=param,
            )
        output: list[dict[str, Any]] = found.body["output"]
        return next(item for item in output if item["id"] == item_id)

    def _drop(self, response_id: str) -> None:
        dropped = self._kept.pop(response_id)
        self._bytes -= dropped.size_bytes
        for item in dropped.body["output"]:
            del self._response_ids[item["id"]]
