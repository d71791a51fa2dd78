"""Two gateways whose conversations the parent keeps, over real sockets."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import monotonic

from msgspec.structs import replace

from core.access.named_key import CALLER_KEY, NamedKey
from core.conversation.items import AudioPart, FunctionCallItem, ImagePart, MessageItem, TextPart
from pipeline.conversation.conversation import Conversations
from pipeline.shared.settings import ConversationProfile, SessionSettings
from server.gateways.conversation_client import ParentKeeper
from server.gateways.conversation_store import ConversationServer

DEADLINE_S = 20


class Gateway:
    """One gateway: its conversations, and its connection to the parent."""

    def __init__(self, server: ConversationServer, number: int) -> None:
        self._server, self._number = server, number
        self._parent_end, own_end = socket.socketpair()
        for end in (self._parent_end, own_end):
            end.setblocking(False)
        self.keeper = ParentKeeper(own_end)
        self.conversations = Conversations(keeper=self.keeper)

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Gateway"]:
        async with asyncio.TaskGroup() as tasks:
            served = tasks.create_task(self._server.serve(self._number, self._parent_end))
            async with self.keeper.running():
                yield self
            await served


@asynccontextmanager
async def two(*, ending: frozenset[int] = frozenset()) -> AsyncIterator[tuple[Gateway, Gateway]]:
    server = ConversationServer(monotonic, lambda number: number in ending)
    async with (
        asyncio.timeout(DEADLINE_S),
        Gateway(server, 1).running() as one,
        Gateway(server, 2).running() as another,
    ):
        yield one, another


async def kept(gateway: Gateway, size_bytes: int) -> None:
    """Waits until the parent has as much."""
    while gateway._server.store.size_bytes < size_bytes:  # noqa: ASYNC110 - no event tells it
        await asyncio.sleep(0.01)


def text(item_id: str, words: str, role: str = "user") -> MessageItem:
    return MessageItem(item_id, role, (TextPart(words),))  # type: ignore[arg-type]


ITEMS = (
    MessageItem("1", "user", (AudioPart("Hello \ud800"), ImagePart("data:image/png;base64,aa"))),
    FunctionCallItem("2", "call_1", "light", '{"on": true}'),
    MessageItem("3", "assistant", (AudioPart(None),), "incomplete", speaker="Anna"),
)


def test_another_gateway_goes_on_with_a_conversation() -> None:
    async def scene() -> None:
        async with two() as (one, another):
            here = one.conversations.get(None)
            here.history.add(ITEMS[0])
            here.history.add(ITEMS[1], is_internal=True)
            here.history.add(ITEMS[2])
            here.language, here.person_id = "de", "person_1"
            here.profile = ConversationProfile.of(SessionSettings(instructions="Be brief."))
            await kept(one, 300)
            await another.conversations.recall(here.id)
            there = another.conversations.get(here.id)
            assert there.history.items == (
                MessageItem("1", "user", (AudioPart("Hello ?"), ImagePart(""))),
                *ITEMS[1:],
            )
            assert there.history.last_id() == "3"
            assert there.facts() == replace(here.facts(), is_named=True)  # a client names it
            assert there.profile is not None
            assert there.profile.instructions == "Be brief."

            # What the first one adds no longer counts; it gets the conversation back with a recall.
            here.history.add(text("4", "lost"))
            there.history.add(text("5", "x" * 5000))
            await kept(one, 5000)
            await one.conversations.recall(here.id)
            assert [item.id for item in here.history.items] == ["1", "2", "3", "5"]

    asyncio.run(scene())


def test_a_named_key_reaches_only_its_own_conversations() -> None:
    async def scene() -> None:
        anna = NamedKey("key_1", "anna", ("talk",))
        async with two() as (one, another):
            token = CALLER_KEY.set(anna)
            one.conversations.get("kitchen").history.add(text("1", "x" * 100))
            await kept(one, 100)
            CALLER_KEY.reset(token)
            await another.conversations.recall("kitchen")
            assert not another.conversations.has("kitchen")
            CALLER_KEY.set(anna)
            await another.conversations.recall("kitchen")
            assert another.conversations.has("kitchen")

    asyncio.run(scene())


def test_a_conversation_that_is_deleted_anywhere_is_gone() -> None:
    async def scene() -> None:
        async with two() as (one, another):
            one.conversations.get("kitchen").history.add(text("1", "x" * 100))
            await kept(one, 100)
            another.conversations.forget("kitchen")
            while another._server.store.count:  # noqa: ASYNC110 - no event tells it
                await asyncio.sleep(0.01)

    asyncio.run(scene())


def test_conversations_of_a_gateway_that_drains_stay() -> None:
    async def scene() -> None:
        async with two(ending=frozenset({1})) as (one, another):
            unnamed = one.conversations.get(None)
            with unnamed.keep():
                unnamed.history.add(text("1", "x" * 100))
                await kept(one, 100)
            assert not one.conversations.has(unnamed.id)
            await another.conversations.recall(unnamed.id)
            assert another.conversations.has(unnamed.id)
            with another.conversations.get(unnamed.id, is_named=False).keep():
                pass
            while another._server.store.count:  # noqa: ASYNC110 - no event tells it
                await asyncio.sleep(0.01)

    asyncio.run(scene())
