"""Tables of the registry. A change here needs a migration in `migrations/versions`."""

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    JSON,
    Boolean,
    Column,
    DateTime,
    Dialect,
    Float,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Row,
    String,
    Table,
    Text,
    UniqueConstraint,
    false,
)
from sqlalchemy.types import TypeDecorator

DeviceRow = Row[Any]
"A row of the table `devices`."


class UtcDateTime(TypeDecorator[datetime]):
    """A moment in UTC: SQLite stores no time zone."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        return None if value is None else value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None or value.tzinfo is None:
            return value and value.replace(tzinfo=UTC)
        return value.astimezone(UTC)


metadata = MetaData()

devices = Table(
    "devices",
    metadata,
    Column("id", String(40), primary_key=True),
    Column("kind", String(16), nullable=False),
    Column("hardware_id", String(128), nullable=False),
    Column("name", String(64), nullable=False),
    Column("area", String(64), nullable=False, default=""),
    Column("standing", String(16), nullable=False),
    Column("profile", JSON, nullable=False),
    Column("board", String(64), nullable=False, default=""),
    Column("firmware", String(64), nullable=False, default=""),
    Column("address", String(64), nullable=False, default=""),
    Column("first_seen", UtcDateTime, nullable=False),
    Column("last_seen", UtcDateTime, nullable=False),
    # NULL: no code; "" could not be used, since the column is unique
    Column("pairing_code", String(6)),
    Column("pairing_code_expires", UtcDateTime),
    Column("identity", LargeBinary(32)),  # NULL: none is known
    # identity of a newcomer, which waits under the code
    Column("claimed_identity", LargeBinary(32)),
    UniqueConstraint("kind", "hardware_id", name="devices_hardware"),
    UniqueConstraint("pairing_code", name="devices_pairing_code"),
)

tokens = Table(
    "tokens",
    metadata,
    Column("digest", LargeBinary(32), primary_key=True),
    Column("device_id", String(40), ForeignKey("devices.id", ondelete="CASCADE"), nullable=False),
    Column("issued", UtcDateTime, nullable=False),
    Column("expires", UtcDateTime, nullable=False),
    # identity of the board that received it; NULL: from a version without identities
    Column("identity", LargeBinary(32)),
    Index("tokens_device", "device_id"),
)

settings = Table(
    "settings",
    metadata,
    Column("owner", String(40), primary_key=True),  # a device's id; "": the server
    Column("key", String(128), primary_key=True),
    Column("value", JSON, nullable=False),
)

named_keys = Table(
    "named_keys",
    metadata,
    Column("id", String(40), primary_key=True),
    Column("name", String(64), nullable=False),
    Column("digest", LargeBinary(32), nullable=False),
    Column("scopes", JSON, nullable=False),
    Column("max_sessions", Integer),  # NULL: no limit of its own; the same for the next one
    Column("requests_per_minute", Integer),
    Column("created", UtcDateTime, nullable=False),
    Column("last_used", UtcDateTime),  # NULL: never
    Column("profile", JSON, nullable=False),  # object with the fields of SessionProfile
    UniqueConstraint("name", name="named_keys_name"),
    UniqueConstraint("digest", name="named_keys_digest"),
)

kept_conversations = Table(
    "kept_conversations",
    metadata,
    Column("owner", String(40), primary_key=True),  # a named key's id; "": the server's owner
    Column("id", String(64), primary_key=True),
    Column("changed", UtcDateTime, nullable=False),
    Column("turn_count", Integer, nullable=False),  # all turns so far, also those dropped since
    Column("size_bytes", Integer, nullable=False),  # UTF-8 bytes of its turns
)

kept_turns = Table(
    "kept_turns",
    metadata,
    Column("owner", String(40), primary_key=True),
    Column("conversation_id", String(64), primary_key=True),
    Column("id", String(64), primary_key=True),
    Column("number", Integer, nullable=False),  # order in the conversation
    Column("said", Text, nullable=False),
    Column("reply", Text, nullable=False),
    Column("tool_calls", JSON, nullable=False),  # list of objects with the fields of KeptToolCall
    ForeignKeyConstraint(
        ["owner", "conversation_id"],
        ["kept_conversations.owner", "kept_conversations.id"],
        name="kept_turns_conversation",
        ondelete="CASCADE",
    ),
)

speakers = Table(
    "speakers",
    metadata,
    Column("id", String(40), primary_key=True),
    Column("owner", String(40), nullable=False),  # a named key's id; "": the server's owner
    Column("name", String(64), nullable=False),
    Column("created", UtcDateTime, nullable=False),
    Column("profile", JSON, nullable=False),  # object with the fields of PersonProfile
    UniqueConstraint("owner", "name", name="speakers_name"),
)

own_voices = Table(
    "own_voices",
    metadata,
    Column("id", String(40), primary_key=True),
    Column("owner", String(40), nullable=False),  # a named key's id; "": the server's owner
    Column("name", String(32), nullable=False),
    Column("language", String(8), nullable=False),
    Column("consent", Text, nullable=False),  # text to which the person agreed
    Column("created", UtcDateTime, nullable=False),  # also the time of the consent
    Column("condition", LargeBinary, nullable=False),  # in the engine's own form
    UniqueConstraint("owner", "name", name="own_voices_name"),
)

voice_samples = Table(
    "voice_samples",
    metadata,
    Column("id", String(40), primary_key=True),
    Column(
        "speaker_id",
        String(40),
        ForeignKey("speakers.id", ondelete="CASCADE", name="voice_samples_speaker"),
        nullable=False,
    ),
    Column("model", String(128), nullable=False),  # vectors of two models cannot be compared
    Column("vector", LargeBinary, nullable=False),  # little-endian float32
    Column("speech_ms", Integer, nullable=False),
    Column("added", UtcDateTime, nullable=False),
    # Was it added by the server, from an utterance of a person whose voice it follows?
    Column("is_followed", Boolean, nullable=False, server_default=false()),
    Index("voice_samples_by_speaker", "speaker_id"),
)

person_list_items = Table(
    "person_list_items",
    metadata,
    Column("id", String(40), primary_key=True),
    Column(
        "speaker_id",
        String(40),
        ForeignKey("speakers.id", ondelete="CASCADE", name="person_list_items_speaker"),
        nullable=False,
    ),
    Column("text", Text, nullable=False),
    Column("number", Integer, nullable=False),  # order in the list
    Index("person_list_items_by_speaker", "speaker_id"),
)

telephone_numbers = Table(
    "telephone_numbers",
    metadata,
    Column("number", String(16), primary_key=True),  # E.164: + and at most 15 digits
    Column(
        "speaker_id",
        String(40),
        ForeignKey("speakers.id", ondelete="CASCADE", name="telephone_numbers_speaker"),
        nullable=False,
    ),
    Index("telephone_numbers_by_speaker", "speaker_id"),
)

voice_ratings = Table(
    "voice_ratings",
    metadata,
    Column("owner", String(40), primary_key=True),  # a named key's id; "": the server's owner
    Column("voice", String(128), primary_key=True),  # an id as `GET /v1/audio/voices` lists it
    Column("good", Integer, nullable=False),
    Column("bad", Integer, nullable=False),
)

machines = Table(
    "machines",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=False),  # drawn at each start
    Column("url", String(256), nullable=False),  # where clients reach it
    Column("peer_address", String(64), nullable=False),  # host:port for the other servers
    Column("fingerprint", String(64), nullable=False),  # SHA-256 of its certificate, in hex
    Column("load", Float, nullable=False),  # share of its capacity that is used; 1: it is full
    Column("max_sessions", Integer, nullable=False),
    Column("takes_calls", Boolean, nullable=False),  # false: it drains
    Column("rooms", JSON, nullable=False),  # digests of rooms whose devices report wake words
    Column("devices", JSON, nullable=False),  # ids of the devices that are connected to it
    Column("heartbeat", UtcDateTime, nullable=False),  # by the database's clock
)

wake_claims = Table(
    "wake_claims",
    metadata,
    Column("room", String(64), primary_key=True),  # digest of the wake word and the room
    Column("device_id", String(40), nullable=False),  # the device that answered last
    Column("claimed", UtcDateTime, nullable=False),  # by the database's clock
)
