"""What outlives a connection: a conversation's history and profile, and who listens to it now."""

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Protocol

from core.ids import new_id
from core.ports import NOWHERE, Place
from pipeline.history import History
from pipeline.settings import Profile

MAX_CONVERSATIONS = 1000
"The longest unused go first; one costs some 100 kB, and 1 M characters at most."


class Speaker(Protocol):
    """A session, as far as announcements need one."""

    def say(self, text: str) -> bool: ...


@dataclass(slots=True)
class Conversation:
    id: str
    history: History = field(default_factory=History)
    speakers: list[Speaker] = field(default_factory=list[Speaker])
    "Sessions connected to it, the newest last."
    language: str | None = None
    "Spoken in it last: what is said unasked, or over a connection that names none, is in it too."
    place: Place = NOWHERE
    'Where its last connection stands: tools may take "the lights" for the room\'s.'
    profile: Profile | None = None
    "What its next connection begins with; a client takes a value back by sending null for it."

    def left_by(self, speaker: Speaker) -> None:
        """Images are kept while somebody is there: a thousand conversations are remembered."""
        self.speakers.remove(speaker)
        if not self.speakers:
            self.history.forget_images()


class Conversations:
    """Every conversation that is remembered. Also the `Announcer` of the skills."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, Conversation] = OrderedDict()

    def get(self, conversation_id: str | None) -> Conversation:
        """The conversation with this id, or a new one. An unknown id begins anew under it."""
        found = self._known.get(conversation_id or "")
        if found is None:
            found = Conversation(conversation_id or new_id("conv"))
            self._known[found.id] = found
            self._forget_unused()
        self._known.move_to_end(found.id)
        return found

    def profile_of(self, conversation_id: str | None) -> Profile | None:
        """None for a new conversation. Does not count as use."""
        known = self._known.get(conversation_id or "")
        return known.profile if known else None

    def place_of(self, conversation_id: str) -> Place:
        """Where its last connection stands; nowhere, if it is not known. Does not count as use."""
        known = self._known.get(conversation_id)
        return known.place if known else NOWHERE

    async def announce(self, conversation_id: str, text: str) -> bool:
        """Say `text` on the newest session that speaks; False when nobody is there to hear it."""
        conversation = self._known.get(conversation_id)
        if conversation is None:
            return False
        return any(speaker.say(text) for speaker in reversed(conversation.speakers))

    def _forget_unused(self) -> None:
        unused = [c.id for c in self._known.values() if not c.speakers]
        for conversation_id in unused[: max(0, len(self._known) - MAX_CONVERSATIONS)]:
            del self._known[conversation_id]
