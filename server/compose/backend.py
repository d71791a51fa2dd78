"""Services that all doors share."""

from dataclasses import dataclass

from core.access.limits import PlaceCounter
from pipeline.conversation.conversation import Conversations
from pipeline.services import SessionServices
from pipeline.session.one_shot import OneShotResponses
from pipeline.session.sessions import Sessions
from pipeline.shared.settings import InitialSettings
from pipeline.speech.file import SpeechFiles
from pipeline.speech.language.language_id import TextLanguageDetector
from pipeline.speech.own_voices import OwnVoices
from pipeline.tools.home import Home
from pipeline.tools.skills import HomeControls
from pipeline.transcription.recording import Transcriber
from server.compose.devices import DeviceServices
from server.compose.engines import Engines
from server.config import Config
from serving.workers.file_decoder import DecoderProcess


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """Services that all doors share."""

    config: Config
    engines: Engines
    session_services: SessionServices
    home: Home
    "The home that the page shows, also as a mirror of Home Assistant."
    home_controls: HomeControls
    devices: DeviceServices
    server_settings: InitialSettings
    "Returns the server's settings for a new session."
    initial_settings: InitialSettings
    "Returns the settings with which a new session of the caller begins: those of its key count."
    sessions: Sessions
    conversations: Conversations
    transcriber: Transcriber
    "Turns recordings into text."
    speech_files: SpeechFiles
    "Turns text into sound files."
    own_voices: OwnVoices | None
    "Makes voices of recordings; None: they are off."
    languages: TextLanguageDetector
    "Finds the language of a text."
    one_shot_responses: OneShotResponses
    "Answers single requests without a live session."
    decoder: DecoderProcess
    "Process that decodes uploaded files."
    places: PlaceCounter | None
