"""Opens the device registry, presence and announcements of one server process."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from core.errors import StorageError
from core.ports import Clock
from devices.api.event_log import DeviceEventLog
from devices.fleet.presence import DeviceNotification, Presence
from devices.fleet.wake_arbiter import WakeArbiter
from devices.fleet.wake_claims import WakeClaims
from devices.mqtt.last_turns import LastTurns
from devices.notices.announcement_tools import AnnouncementTools
from devices.notices.announcements import Announcements
from devices.registry.database import open_database, sqlite_url
from devices.registry.kept_conversations import KeptConversations
from devices.registry.machines import MachineRegistry
from devices.registry.named_keys import NamedKeys
from devices.registry.own_voices import OwnVoiceTable
from devices.registry.person_lists import PersonLists
from devices.registry.registry import DeviceRegistry
from devices.registry.settings import DatabaseSettingsStore
from devices.registry.speakers import EnrolledSpeakers
from devices.registry.voice_enrolment import VoiceEnrolment
from devices.registry.voice_ratings import VoiceRatings
from devices.xiaozhi.device_tools import DeviceToolProvider
from pipeline.conversation.conversation import Conversations
from pipeline.services import EngineSet
from pipeline.speech.voices import choose_voice
from server.compose.mqtt import last_turns_of
from server.config import Config

FILE_NAME = "devices.db"
"Name of the SQLite file in the state folder."


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceServices:
    """Services that every device door gets."""

    registry: DeviceRegistry
    "Known devices; also implements `devices.fleet.directory.DeviceDirectory`."
    settings: DatabaseSettingsStore
    "Settings that a door stores for its devices."
    named_keys: NamedKeys
    "Keys of persons and programs. They lie in the same database."
    kept_conversations: KeptConversations
    "Conversations that persons keep. They lie in the same database."
    own_voices: OwnVoiceTable
    "Voices that people made of recordings. They lie in the same database."
    speakers: EnrolledSpeakers
    person_lists: PersonLists
    voice_ratings: VoiceRatings
    "Counts of good and bad opinions of voices, in the same database."
    voice_enrolment: VoiceEnrolment
    "People whose voices the server knows. They lie in the same database."
    presence: Presence
    "Devices that are connected now."
    event_log: DeviceEventLog
    "Latest events of the devices, for the devices API."
    announcements: Announcements
    "Announcements that wait for a device. Their `run` delivers them."
    wake_arbiter: WakeArbiter
    "Decides which device of a room answers a wake word. Its `run` must be running."
    announcement_tools: AnnouncementTools
    "Tools with which programs speak in rooms."
    last_turns: LastTurns | None
    "Words, people and latency of the last turns, for MQTT; None: it is off."
    machines: MachineRegistry
    "Servers of all machines that share the database."
    wake_claims: WakeClaims
    "Wake words that other servers may answer, too."
    tools: DeviceToolProvider
    "Tools that connected devices offer, for example a volume control."


@asynccontextmanager
async def device_services(
    config: Config, clock: Clock, conversations: Conversations
) -> AsyncIterator[DeviceServices]:
    """Opens the device database and yields the services of all device doors. Raises ConfigError for
    a database that can never work."""
    is_shared = config.server.gateways != 1
    async with open_database(database_url(config), is_shared=is_shared) as database:
        trusts_this_machine = config.server.trusts_this_machine
        settings = config.devices.as_settings(trusts_this_machine=trusts_this_machine)
        registry = DeviceRegistry(database, clock, settings)
        named_keys = NamedKeys(database, clock)
        named_keys.on_revoked.append(conversations.forget_owned)
        with suppress(StorageError):  # `NamedKeys.run` tries again
            await named_keys.load()
        speakers = EnrolledSpeakers(database, clock)
        named_keys.on_revoked.append(speakers.forget_owned)
        with suppress(StorageError):  # `EnrolledSpeakers.run` tries again
            await speakers.load()
        own_voices = OwnVoiceTable(database, clock)
        named_keys.on_revoked.append(own_voices.forget_owned)
        with suppress(StorageError):  # `OwnVoiceTable.run` tries again
            await own_voices.load()
        event_log = DeviceEventLog(clock)
        presence = Presence(event_log)
        announcements = Announcements(conversations, registry, presence, clock)
        wake_claims = WakeClaims()
        yield DeviceServices(
            registry=registry,
            named_keys=named_keys,
            kept_conversations=KeptConversations(database, clock, config.history.days),
            own_voices=own_voices,
            speakers=speakers,
            person_lists=PersonLists(database),
            voice_ratings=VoiceRatings(database),
            voice_enrolment=VoiceEnrolment(speakers, clock),
            settings=DatabaseSettingsStore(database),
            presence=presence,
            event_log=event_log,
            announcements=announcements,
            wake_arbiter=WakeArbiter(clock, filter(None, config.willow.wake_groups), wake_claims),
            announcement_tools=AnnouncementTools(registry, presence, announcements, conversations),
            last_turns=last_turns_of(config.mqtt, clock),
            machines=MachineRegistry(database),
            wake_claims=wake_claims,
            tools=DeviceToolProvider(),
        )


def notice_check(engines: EngineSet) -> Callable[[DeviceNotification], None]:
    """Returns a check of announcements: it raises RequestError voice_not_found or
    unsupported_language for one that the server's voices cannot speak."""

    def check(notice: DeviceNotification) -> None:
        if notice.voice or notice.language:
            language = notice.language or engines.default_language
            choose_voice(engines.tts, language, notice.voice or None)

    return check


def database_url(config: Config) -> str:
    """Returns the URL of the device database in SQLAlchemy's form."""
    file = Path(config.paths.state_dir).expanduser().absolute() / FILE_NAME
    return config.devices.database or sqlite_url(file)
