"""Sessions and conversations of named keys: each key has its own, and they end with it."""

import asyncio
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, contextmanager
from dataclasses import dataclass, field, replace

from core.access.named_key import CALLER_KEY, NamedKey
from core.conversation.events import SessionEvent
from core.conversation.items import MessageItem, TextPart
from core.errors import OverloadedError
from core.ports import DeviceLocation
from pipeline.conversation.conversation import Conversations
from pipeline.session.session import Session
from pipeline.session.sessions import Sessions
from pipeline.shared.settings import SessionSettings
from tests.loop import run_virtual
from tests.pipeline.fakes import World

ANNA, BEN = (NamedKey(f"key_{name}", name, ("talk",), max_sessions=2) for name in ("anna", "ben"))


@contextmanager
def called_with(key: NamedKey | None) -> Iterator[None]:
    reset = CALLER_KEY.set(key)
    try:
        yield
    finally:
        CALLER_KEY.reset(reset)


def test_each_named_key_has_conversations_of_its_own() -> None:
    conversations, found = Conversations(), {}
    for key in (None, ANNA, BEN):
        with called_with(key):
            found[key] = conversations.get("kitchen")
            assert conversations.get("kitchen") is found[key]
            assert found[key].id == "kitchen"
    assert len({one.key for one in found.values()}) == 3
    with called_with(BEN):
        for foreign in (found[ANNA].key, f"../{found[ANNA].key}"):
            assert not conversations.has(foreign)
            assert conversations.profile_of(foreign) is None
            assert conversations.get(foreign) is not found[ANNA]


def test_a_key_forgets_only_its_own_conversation() -> None:
    conversations = Conversations()
    kitchens = {}
    for key in (None, ANNA, BEN):
        with called_with(key):
            kitchens[key] = conversations.get("kitchen")
    with called_with(BEN):
        conversations.forget("kitchen")
        conversations.forget(kitchens[ANNA].key)
        assert not conversations.has("kitchen")
    for key in (None, ANNA):
        with called_with(key):
            assert conversations.get("kitchen") is kitchens[key]


def test_announcements_find_the_conversation_of_a_named_key() -> None:
    @dataclass
    class Speaker:
        said: list[str] = field(default_factory=list)

        def say(self, text: str) -> bool:
            self.said.append(text)
            return True

    conversations, anna, owner = Conversations(), Speaker(), Speaker()
    conversations.get("kitchen").sessions.append(owner)
    with called_with(ANNA):
        kitchen = conversations.get("kitchen")
        kitchen.sessions.append(anna)
        kitchen.place = DeviceLocation(area="attic")
    # A timer ends outside of any request.
    assert asyncio.run(conversations.announce(kitchen.key, "Time is up."))
    assert (anna.said, owner.said) == (["Time is up."], [])
    assert conversations.place_of(kitchen.key).area == "attic"


def test_conversations_of_a_revoked_key_are_forgotten_also_those_in_use() -> None:
    conversations = Conversations()
    kept = conversations.get("kitchen")
    with called_with(ANNA):
        unused, used = conversations.get("hall"), conversations.get("kitchen")
    with called_with(BEN):
        other = conversations.get("kitchen")
    with used.keep():
        conversations.forget_owned(ANNA)
        with called_with(ANNA):
            assert not conversations.has("hall")
            assert conversations.get("kitchen") is used
    conversations.forget_owned(ANNA)
    with called_with(ANNA):
        assert conversations.get("hall") is not unused
        assert conversations.get("kitchen") is not used
    with called_with(BEN):
        assert conversations.get("kitchen") is other
    assert conversations.get("kitchen") is kept


def test_sessions_of_a_named_key_are_counted_limited_and_ended_together() -> None:
    world = World()

    async def main() -> None:
        sessions = Sessions(world.services(), world.conversations, max_sessions=4)

        def opened() -> AbstractAsyncContextManager[Session]:
            return sessions.open(SessionSettings(), paced_by="server")

        async def code_of(key: NamedKey | None) -> str:
            with called_with(key):
                try:
                    async with opened():
                        return ""
                except OverloadedError as full:
                    return full.code

        async with AsyncExitStack() as stack:
            with called_with(ANNA):
                first, second = [await stack.enter_async_context(opened()) for _ in range(2)]
            counts = [sessions.key_sessions.count_of(key) for key in (ANNA, BEN)]
            assert counts == [2, 0]
            assert [await code_of(key) for key in (ANNA, BEN)] == ["too_many_sessions", ""]
            with called_with(BEN):
                kept = await stack.enter_async_context(opened())
            # The last place is the owner's.
            assert [await code_of(key) for key in (BEN, None)] == ["server_full", ""]
            sessions.end_all_of(ANNA)
            assert [one._closing.is_set() for one in (first, second, kept)] == [True, True, False]
        assert sessions.key_sessions.count_of(ANNA) == 0

    run_virtual(main())


def test_events_of_a_named_keys_sessions_go_to_no_listener() -> None:
    heard: list[tuple[str, str]] = []

    def listen(place: DeviceLocation, event: SessionEvent) -> None:
        heard.append((place.device_id, type(event).__name__))

    async def main() -> None:
        world = World()
        services = replace(world.services(), listener=listen)
        sessions = Sessions(services, world.conversations, max_sessions=4)
        for key, device_id in ((ANNA, "dev_anna"), (None, "dev_house")):
            changed = sessions.changed()
            with called_with(key):
                place = DeviceLocation(device_id=device_id)
                async with sessions.open(
                    SessionSettings(), paced_by="server", place=place
                ) as session:
                    assert changed.is_set()
                    session.add_item(MessageItem("item_1", "user", (TextPart("hello"),)))

    run_virtual(main())
    assert heard == [("dev_house", "ItemAdded"), ("dev_house", "ItemDone")]
