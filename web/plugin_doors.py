"""What a door of another package is, and what it is given.

Such a package names a module as an entry point in the group `earshot.doors`. The module has
`Settings`, a frozen `msgspec.Struct` that forbids unknown fields, and `create(settings, services)`,
which returns a `PluginDoor`. The section `[doors.NAME]` of the configuration holds the settings.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from core.http.routes import Route
from core.ports import Clock, Metrics
from pipeline.session.one_shot import OneShotResponses
from pipeline.session.sessions import Sessions
from pipeline.shared.settings import SessionSettings
from pipeline.speech.file import SpeechFiles
from pipeline.transcription.recording import Transcriber


@dataclass(frozen=True, slots=True, kw_only=True)
class DoorServices:
    """What every door of the server uses, shared with those of other packages."""

    language: str
    "The server's own (ISO 639-1): of callers that do not say theirs."
    exchanges: OneShotResponses
    "Answers one text with the assistant's text, tools included."
    transcriber: Transcriber
    "Turns a recording of any length into text."
    reader: SpeechFiles
    "Speaks a text as a sound file."
    sessions: Sessions
    "Opens live conversations, which hear and speak."
    session_settings: SessionSettings
    "What a live conversation begins with where its client says nothing else."
    clock: Clock
    metrics: Metrics


class PluginDoor(Protocol):
    """A way into the server. Its routes are mounted on the main port, behind the same checks of
    key, origin and size as our own; an error of `core.errors` becomes the answer that it stands
    for, and any other exception a 500."""

    @property
    def routes(self) -> Sequence[Route]:
        """Asked once, at the start. A path that Earshot itself answers is refused."""
        ...


@runtime_checkable
class RunsInBackground(Protocol):
    """A door with work of its own, such as a port that it listens on."""

    async def run(self) -> None:
        """Called once, when the server is up; cancelled when the server ends. An error in it is
        logged and ends this work alone."""
        ...
