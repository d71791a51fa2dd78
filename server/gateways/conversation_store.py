"""Copies of the gateways' conversations in the memory of their parent (ADR 118).

A gateway sends each change of a conversation. If it is killed, the gateway to which the client
comes back claims the conversation and goes on with it. The parent does not read what it keeps, and
nothing of it is written to disk.
"""

import asyncio
import logging
import socket
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from msgspec import Struct
from msgspec.msgpack import Decoder

from core.errors import RemoteProtocolError
from engines.runtime.worker.protocol import MessageFrameReader, frame

logger = logging.getLogger(__name__)

MAX_CONVERSATIONS = 2000
"""Most conversations that are kept: twice as many as one gateway keeps. Those that were not changed
for the longest time are dropped first."""

MAX_KEPT_BYTES = 128 * 1024 * 1024
"Most bytes of all copies together: as much as one gateway keeps itself."

RESUME_LIMIT_S = 3600.0
"""Time in seconds that a conversation is kept after its gateway has ended. Clients come back within
seconds; people return to an open page within an hour."""

EXPIRY_INTERVAL_S = 60.0
"Interval of the search for conversations that have been kept for too long, in seconds."

MAX_FRAME_BYTES = 16 * 2**20
"""Largest message of a gateway. A whole history has 1 MiB of text at most, plus the tools of MCP
servers."""

READ_BYTES = 262_144
"Bytes read from a gateway at once."


class KeepRequest(Struct, frozen=True, tag=True):
    """Tells how a conversation has changed."""

    key: str
    unchanged: int
    "Number of first ids that are the same as in the message before."
    ids: tuple[str, ...]
    "Ids of the other items, in order."
    items: dict[str, bytes]
    "Id -> item that is new or has changed."
    facts: bytes


class ForgetRequest(Struct, frozen=True, tag=True):
    """Tells that a conversation is to be forgotten."""

    key: str
    is_released: bool
    "True: only because the gateway needs it no more, or needs the room."


class ForgetOwnerRequest(Struct, frozen=True, tag=True):
    """Tells that all conversations of a named key are to be forgotten."""

    prefix: str
    "Beginning of the keys of its conversations."


class ClaimRequest(Struct, frozen=True, tag=True):
    """Asks for a conversation, which then belongs to the gateway that asks."""

    request_id: int
    key: str


StoreRequest = KeepRequest | ForgetRequest | ForgetOwnerRequest | ClaimRequest


class KeptRecord(Struct, frozen=True):
    """A whole conversation, as the parent keeps it."""

    items: tuple[bytes, ...]
    facts: bytes


class ClaimReply(Struct, frozen=True, tag=True):
    """Answers a claim."""

    request_id: int
    record: KeptRecord | None
    "None: the gateway that asks has the newest copy, or there is none."


class LostNotice(Struct, frozen=True, tag=True):
    """Tells a gateway that another one has the conversation now."""

    key: str


class ResendRequest(Struct, frozen=True, tag=True):
    """Asks for a whole conversation: a change came for one that is not kept any more."""

    key: str


StoreReply = ClaimReply | LostNotice | ResendRequest


@dataclass(slots=True)
class _Entry:
    """One conversation."""

    gateway: int | None
    "Number of the gateway that has it; None: that one has ended."
    ids: list[str] = field(default_factory=list)
    items: dict[str, bytes] = field(default_factory=dict)
    facts: bytes = b""
    ended_s: float = 0.0
    "Time at which its gateway has ended, if it has."
    size_bytes: int = 0


class ConversationStore:
    """The copies, without I/O. Times are seconds of any monotonic clock."""

    def __init__(
        self, *, max_conversations: int = MAX_CONVERSATIONS, max_bytes: int = MAX_KEPT_BYTES
    ) -> None:
        self._max_conversations, self._max_bytes = max_conversations, max_bytes
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        "Key -> conversation; the one that was changed last is at the end."
        self._bytes = 0

    @property
    def count(self) -> int:
        """Number of conversations."""
        return len(self._entries)

    @property
    def size_bytes(self) -> int:
        """Bytes of all conversations."""
        return self._bytes

    def keep(self, change: KeepRequest, gateway: int) -> StoreReply | None:
        """Takes a change. Returns what the gateway is told; None: nothing."""
        entry = self._entries.get(change.key)
        if entry is not None and entry.gateway not in (None, gateway):
            return LostNotice(change.key)
        if entry is None or entry.gateway is None:
            entry = _Entry(gateway) if change.unchanged == 0 else None
        if entry is None or len(entry.ids) < change.unchanged:
            return ResendRequest(change.key)
        items = entry.items | change.items
        ids = [*entry.ids[: change.unchanged], *change.ids]
        if any(name not in items for name in ids):
            return ResendRequest(change.key)
        self._drop(change.key)
        entry.ids, entry.facts = ids, change.facts
        entry.items = {name: items[name] for name in ids}
        entry.size_bytes = len(entry.facts) + sum(map(len, entry.items.values()))
        self._entries[change.key] = entry
        self._bytes += entry.size_bytes
        self._enforce_limits()
        return None

    def claim(self, key: str, gateway: int) -> tuple[KeptRecord | None, int | None]:
        """Gives a conversation to a gateway. Returns it, and the number of the gateway that runs
        and had it before. The first is None if there is none, or the gateway has it already."""
        entry = self._entries.get(key)
        if entry is None or entry.gateway == gateway:
            return None, None
        former, entry.gateway = entry.gateway, gateway
        return KeptRecord(tuple(entry.items[name] for name in entry.ids), entry.facts), former

    def forget(self, key: str) -> int | None:
        """Forgets a conversation. Returns the gateway that has it."""
        entry = self._entries.get(key)
        self._drop(key)
        return entry.gateway if entry is not None else None

    def release(self, key: str, gateway: int) -> None:
        """Forgets a conversation that its gateway needs no more."""
        if key in self._entries and self._entries[key].gateway == gateway:
            self._drop(key)

    def forget_owner(self, prefix: str) -> None:
        """Forgets the conversations whose keys begin with `prefix`."""
        for key in [key for key in self._entries if key.startswith(prefix)]:
            self._drop(key)

    def gateway_ended(self, gateway: int, now_s: float) -> None:
        """Notes that the conversations of a gateway have none now."""
        for entry in self._entries.values():
            if entry.gateway == gateway:
                entry.gateway, entry.ended_s = None, now_s

    def expire(self, now_s: float) -> None:
        """Forgets conversations that nobody has claimed for RESUME_LIMIT_S."""
        for key, entry in list(self._entries.items()):
            if entry.gateway is None and now_s - entry.ended_s >= RESUME_LIMIT_S:
                self._drop(key)

    def _drop(self, key: str) -> None:
        if (entry := self._entries.pop(key, None)) is not None:
            self._bytes -= entry.size_bytes

    def _enforce_limits(self) -> None:
        while len(self._entries) > self._max_conversations or self._bytes > self._max_bytes:
            self._drop(next(iter(self._entries)))


class ConversationServer:
    """Serves the store to the gateways, each over a socket of its own."""

    def __init__(self, clock_s: Callable[[], float], keeps_released: Callable[[int], bool]) -> None:
        """`clock_s`: seconds of a monotonic clock. `keeps_released`: whether a gateway with this
        number is about to end, so that its clients will come back to another one."""
        self.store = ConversationStore()
        self._clock_s, self._keeps_released = clock_s, keeps_released
        self._writers: dict[int, asyncio.StreamWriter] = {}

    async def expire(self) -> None:
        """Forgets what was kept for too long, until cancelled."""
        while True:
            await asyncio.sleep(EXPIRY_INTERVAL_S)
            self.store.expire(self._clock_s())

    async def serve(self, gateway: int, own_end: socket.socket) -> None:
        """Serves a gateway until its end."""
        reader, writer = await asyncio.open_unix_connection(sock=own_end)
        self._writers[gateway] = writer
        requests = MessageFrameReader(Decoder(StoreRequest), MAX_FRAME_BYTES)
        try:
            while data := await reader.read(READ_BYTES):
                for request in requests.receive_data(data):
                    self._answer(request, gateway)
                await writer.drain()
        except ConnectionError:
            pass  # it was killed, which its watcher reports
        except RemoteProtocolError as error:
            logger.warning("! conversations of gateway %d are no longer kept: %s", gateway, error)
        finally:
            del self._writers[gateway]
            writer.close()
            self.store.gateway_ended(gateway, self._clock_s())

    def _answer(self, request: StoreRequest, gateway: int) -> None:
        match request:
            case KeepRequest():
                if (reply := self.store.keep(request, gateway)) is not None:
                    self._send(gateway, reply)
            case ForgetRequest(key, is_released):
                if not is_released:
                    self._forget(key, gateway)
                elif not self._keeps_released(gateway):
                    self.store.release(key, gateway)
            case ForgetOwnerRequest(prefix):
                self.store.forget_owner(prefix)
            case ClaimRequest(request_id, key):
                record, former = self.store.claim(key, gateway)
                if former is not None:
                    self._send(former, LostNotice(key))
                self._send(gateway, ClaimReply(request_id, record))

    def _forget(self, key: str, gateway: int) -> None:
        former = self.store.forget(key)
        if former not in (None, gateway):
            self._send(former, LostNotice(key))

    def _send(self, gateway: int | None, reply: StoreReply) -> None:
        writer = self._writers.get(gateway) if gateway is not None else None
        if writer is not None and not writer.is_closing():
            writer.write(frame(reply))


def difference(
    before: Sequence[tuple[str, object]], after: Sequence[tuple[str, object]]
) -> tuple[int, Sequence[int]]:
    """Compares two lists of (id, version). Returns how many first ids are the same, and the
    indices in `after` of those that are new or of another version."""
    unchanged = 0
    for (old, _), (new, _) in zip(before, after, strict=False):
        if old != new:
            break
        unchanged += 1
    versions = dict(before)
    changed = [index for index, (name, one) in enumerate(after) if versions.get(name) is not one]
    return unchanged, changed
