"""Interface for doors of other packages.

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
    """Parts of the server that all doors share, those of other packages included."""

    language: str
    "The server's language (ISO 639-1), for callers that do not name theirs."
    exchanges: OneShotResponses
    "Answers one text with the assistant's text. Tools are called if needed."
    transcriber: Transcriber
    "Turns a recording of any length into text."
    reader: SpeechFiles
    "Speaks a text as a sound file."
    sessions: Sessions
    "Opens live sessions, which receive and send speech."
    session_settings: SessionSettings
    "Settings of a live session, unless its client sends others."
    clock: Clock
    metrics: Metrics


class PluginDoor(Protocol):
    """A protocol with which clients use the server.

    Its routes are mounted on the main port, behind the same checks of key, origin and size as our
    own. An error of `core.errors` becomes an answer with its status and code, any other exception a
    500."""

    @property
    def routes(self) -> Sequence[Route]:
        """Routes of the door, read once at the start.

        A path that Earshot itself answers is refused.
        """
        ...


@runtime_checkable
class RunsInBackground(Protocol):
    """A door with a task of its own, such as a port that it listens on."""

    async def run(self) -> None:
        """Runs while the server is up, and is cancelled when it ends. Called once.

        An error in it is logged and ends only this task.
        """
        ...
