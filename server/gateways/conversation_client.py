"""A gateway's side of the copies of its conversations, which the parent keeps (ADR 118)."""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from msgspec import DecodeError, Struct
from msgspec.msgpack import Decoder

from core.conversation.items import Item
from core.errors import RemoteProtocolError
from engines.runtime.worker.protocol import MessageFrameReader, frame
from pipeline.conversation.conversation import KEY_SEPARATOR
from pipeline.conversation.kept_conversation import (
    ConversationSource,
    KeptConversation,
    decode_facts,
    decode_item,
    encode_facts,
    encode_item,
)
from server.gateways.conversation_store import (
    MAX_FRAME_BYTES,
    READ_BYTES,
    ClaimReply,
    ClaimRequest,
    ForgetOwnerRequest,
    ForgetRequest,
    KeepRequest,
    KeptRecord,
    LostNotice,
    ResendRequest,
    StoreReply,
    difference,
)

logger = logging.getLogger(__name__)

SEND_INTERVAL_S = 0.05
"""Interval at which changes are sent, in seconds. What changed since the last time is what a
gateway that is killed loses."""

RECALL_LIMIT_S = 1.0
"""Longest wait for the parent at the start of a session, in seconds. It answers in less than 1 ms;
without its answer the session begins with what this gateway has."""

END_LIMIT_S = 1.0
"Longest time for the last changes at the end of this gateway, in seconds."


class ParentKeeper:
    """The `ConversationKeeper` of a gateway. `running` keeps the connection; the parent has its
    other end."""

    def __init__(self, own_end: socket.socket) -> None:
        self._own_end = own_end
        self._dirty: dict[str, ConversationSource] = {}
        "Key -> conversation whose changes are not sent yet."
        self._sent: dict[str, list[tuple[str, Item]]] = {}
        "Key -> items of a conversation of this gateway, as the parent has them."
        self._known: dict[str, ConversationSource] = {}
        "Key -> conversation of which the parent has items."
        self._lost: set[str] = set()
        "Keys of conversations that another gateway has now."
        self._notices: list[Struct] = []
        "Requests to forget, which are sent before the changes."
        self._wake = asyncio.Event()
        self._claims: dict[int, asyncio.Future[KeptRecord | None]] = {}
        self._next_claim = 0
        self._writer: asyncio.StreamWriter | None = None

    def changed(self, conversation: ConversationSource) -> None:
        if conversation.key not in self._lost:
            self._dirty[conversation.key] = conversation
            self._wake.set()

    def forgotten(self, key: str, *, is_released: bool = False) -> None:
        self._drop(key)
        is_others = key in self._lost
        self._lost.discard(key)
        if not (is_others and is_released):
            self._notices.append(ForgetRequest(key, is_released))
            self._wake.set()

    def forgotten_owner(self, key_id: str) -> None:
        self._notices.append(ForgetOwnerRequest(f"{key_id}{KEY_SEPARATOR}"))
        self._wake.set()

    async def recall(self, key: str) -> KeptConversation | None:
        writer = self._writer
        if key in self._sent or writer is None or writer.is_closing():
            return None
        self._next_claim += 1
        request_id, loop = self._next_claim, asyncio.get_running_loop()
        answer: asyncio.Future[KeptRecord | None] = loop.create_future()
        self._claims[request_id] = answer
        writer.write(frame(ClaimRequest(request_id, key)))
        try:
            async with asyncio.timeout(RECALL_LIMIT_S):
                record = await answer
        except TimeoutError:
            logger.warning("! the parent does not answer: a conversation is not taken over")
            return None
        finally:
            del self._claims[request_id]
        self._lost.discard(key)
        return self._read(key, record) if record is not None else None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Sends and reads until the context is left; then the last changes are sent."""
        reader, self._writer = await asyncio.open_unix_connection(sock=self._own_end)
        async with asyncio.TaskGroup() as tasks:
            reading = tasks.create_task(self._receive(reader), name="kept-conversations-read")
            sending = tasks.create_task(self._send(self._writer), name="kept-conversations-send")
            try:
                yield
            finally:
                reading.cancel()
                sending.cancel()
                with suppress(OSError, TimeoutError):
                    async with asyncio.timeout(END_LIMIT_S):
                        await self._flush(self._writer)
                self._writer.close()

    def _read(self, key: str, record: KeptRecord) -> KeptConversation | None:
        try:
            items = tuple(decode_item(data) for data in record.items)
            facts = decode_facts(record.facts)
        except DecodeError as error:  # of a gateway of another version
            logger.warning("! a kept conversation cannot be read: %s", error)
            return None
        self._sent[key] = []  # what is taken over is sent once as a whole
        return KeptConversation(items, facts)

    async def _receive(self, reader: asyncio.StreamReader) -> None:
        replies = MessageFrameReader(Decoder(StoreReply), MAX_FRAME_BYTES)
        try:
            while data := await reader.read(READ_BYTES):
                for reply in replies.receive_data(data):
                    self._take(reply)
        except (RemoteProtocolError, ConnectionError) as error:
            logger.warning("! conversations are no longer kept by the parent: %s", error)

    def _take(self, reply: StoreReply) -> None:
        match reply:
            case ClaimReply(request_id, record):
                answer = self._claims.get(request_id)
                if answer is not None and not answer.done():
                    answer.set_result(record)
            case LostNotice(key):
                self._lost.add(key)
                self._drop(key)
            case ResendRequest(key):
                self._sent.pop(key, None)
                if (known := self._known.get(key)) is not None:
                    self.changed(known)

    def _drop(self, key: str) -> None:
        for conversations in (self._dirty, self._sent, self._known):
            conversations.pop(key, None)

    async def _send(self, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):  # the parent has ended, and this gateway drains
            while True:
                await self._wake.wait()
                await self._flush(writer)
                await asyncio.sleep(SEND_INTERVAL_S)

    async def _flush(self, writer: asyncio.StreamWriter) -> None:
        self._wake.clear()
        notices, self._notices = self._notices, []
        for notice in notices:
            writer.write(frame(notice))
        dirty, self._dirty = self._dirty, {}
        for key, conversation in dirty.items():
            try:
                writer.write(frame(self._change(key, conversation)))
            except RemoteProtocolError as error:
                logger.warning("! a conversation is not kept by the parent: %s", error)
            await writer.drain()

    def _change(self, key: str, conversation: ConversationSource) -> KeepRequest:
        """Returns what the parent needs to have the conversation as it is now."""
        kept = conversation.kept_items()
        after = [(one.item.id, one.item) for one in kept]
        unchanged, changed = difference(self._sent.get(key, ()), after)
        self._sent[key], self._known[key] = after, conversation
        return KeepRequest(
            key,
            unchanged,
            tuple(name for name, _ in after[unchanged:]),
            {kept[index].item.id: encode_item(kept[index]) for index in changed},
            encode_facts(conversation.facts()),
        )
