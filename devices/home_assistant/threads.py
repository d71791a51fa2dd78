"""Which of Home Assistant's conversations goes on in which of ours. Pure: `now_s` is given."""

from collections import OrderedDict
from dataclasses import dataclass

EXPIRES_S = 300.0
"Home Assistant forgets a conversation five minutes after its last sentence."

AWAITS_S = 60.0
"How long a question that it asked back stands."

MAX_KEPT = 1000


@dataclass(slots=True)
class _ConversationId:
    id: str
    used_s: float
    is_asking: bool


class ConversationIds:
    """By our conversation's id; the longest unused go first."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, _ConversationId] = OrderedDict()

    def id(self, ours: str, now_s: float) -> str | None:
        """What to send along; None: nothing at all, for a new conversation."""
        thread = self._kept.get(ours)
        if thread is None or now_s - thread.used_s > EXPIRES_S:
            self._kept.pop(ours, None)
            return None
        return thread.id

    def is_asking(self, ours: str, now_s: float) -> bool:
        """Whether the next sentence is the answer to something that Home Assistant asked."""
        thread = self._kept.get(ours)
        return thread is not None and thread.is_asking and now_s - thread.used_s <= AWAITS_S

    def answered(self, ours: str, theirs: str, now_s: float, *, is_asking: bool) -> None:
        """An answer has come with this id; empty: without one."""
        self._kept.pop(ours, None)
        if not ours or not theirs:
            return
        while len(self._kept) >= MAX_KEPT:
            self._kept.popitem(last=False)
        self._kept[ours] = _ConversationId(theirs, now_s, is_asking)
