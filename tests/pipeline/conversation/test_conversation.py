"""What conversations remember, and how much memory they may take together."""

from contextlib import AsyncExitStack
from dataclasses import dataclass

import pytest

from core.access.named_key import CALLER_KEY, NamedKey
from core.conversation.items import ImagePart, MessageItem, TextPart
from core.errors import OverloadedError, RequestError
from pipeline.conversation.conversation import Conversation, Conversations
from pipeline.conversation.history import MAX_TEXT_BYTES, History
from pipeline.session.one_shot import OneShotRequest, OneShotResponses
from pipeline.session.sessions import ClientSecretHolder, Sessions
from pipeline.shared.settings import ConversationProfile, SessionSettings
from pipeline.speech.language.language_id import TextLanguageDetector
from tests.loop import run_virtual
from tests.pipeline.fakes import World

KIB = "x" * 1024


class Listener:
    """A connection that hears announcements."""

    def say(self, text: str) -> bool:
        return bool(text)


def text(item_id: str, words: str) -> MessageItem:
    return MessageItem(item_id, "user", (TextPart(words),))


def used(conversations: Conversations, conversation_id: str | None) -> Conversation:
    """Returns a conversation with one connection."""
    conversation = conversations.get(conversation_id)
    conversation.sessions.append(Listener())
    return conversation


@dataclass
class Standing(Listener):
    """A connection whose client says where it stands."""

    area: str
    conversation_key: str = ""

    async def ask(self, question: str) -> str | None:
        return question


def test_connections_are_found_by_the_room_that_they_name() -> None:
    conversations = Conversations()
    anna, ben = (NamedKey(f"key_{name}", name, ("talk", "manage")) for name in ("anna", "ben"))
    for key, area in ((None, "Kitchen"), (None, ""), (anna, "Office"), (ben, "Kitchen")):
        reset = CALLER_KEY.set(key)
        conversations.get(None).sessions += [Listener(), Standing(area)]
        CALLER_KEY.reset(reset)

    def counts(key: NamedKey | None) -> dict[str, int]:
        reset = CALLER_KEY.set(key)
        found = conversations.sessions_by_area()
        CALLER_KEY.reset(reset)
        return {area: len(them) for area, them in found.items()}

    # The holder of another key may not pretend to be in the kitchen.
    assert counts(None) == {"Kitchen": 1}
    assert counts(anna) == {"Kitchen": 1, "Office": 1}
    assert counts(ben) == {"Kitchen": 2}


def test_a_history_counts_utf8_bytes_not_characters() -> None:
    history = History()
    emoji = "\N{PARROT}" * (MAX_TEXT_BYTES // 8)
    for number in range(3):
        history.add(text(str(number), emoji))
    assert [item.id for item in history.items] == ["1", "2"]
    assert history.size_bytes == 2 * 4 * len(emoji)


def test_replacing_an_item_with_a_larger_one_drops_older_items() -> None:
    history = History()
    history.add(text("first", KIB))
    history.add(text("second", ""))
    history.replace(text("second", "x" * MAX_TEXT_BYTES))
    assert [item.id for item in history.items] == ["second"]


def test_an_unnamed_conversation_ends_with_its_last_connection() -> None:
    conversations = Conversations()
    unnamed, named = used(conversations, None), used(conversations, "hall")
    for one in (unnamed, named):
        one.history.add(text("a", KIB))
        one.remove_session(one.sessions[0])
    assert conversations.get("hall") is named
    assert conversations.size_bytes == len(KIB)
    assert conversations.get(unnamed.id) is not unnamed


def test_a_conversation_that_a_client_names_later_is_kept() -> None:
    conversations = Conversations()
    first = used(conversations, None)
    second = used(conversations, first.id)
    assert second is first
    for speaker in tuple(first.sessions):
        first.remove_session(speaker)
    assert conversations.get(first.id) is first


def test_a_conversation_can_be_forgotten_at_once_or_after_its_last_connection() -> None:
    conversations = Conversations()
    idle, busy = conversations.get("attic"), used(conversations, "hall")
    for one in (idle, busy):
        one.history.add(text("a", KIB))
        conversations.forget(one.id)
    assert (conversations.has("attic"), conversations.has("hall")) == (False, True)
    busy.remove_session(busy.sessions[0])
    assert not conversations.has("hall")
    assert conversations.size_bytes == 0
    conversations.forget("unknown")


def test_all_conversations_share_one_limit_and_the_largest_is_forgotten_first() -> None:
    conversations = Conversations(max_bytes=4 * len(KIB))
    for name, words in (("small", "hi"), ("large", 3 * KIB), ("next", 2 * KIB)):
        conversations.get(name).history.add(text(name, words))
    assert conversations.size_bytes == len("hi") + 2 * len(KIB)
    kept = [bool(conversations.get(name).history.items) for name in ("small", "large", "next")]
    assert kept == [True, False, True]


def test_a_conversation_in_use_is_not_forgotten() -> None:
    conversations = Conversations(max_bytes=2 * len(KIB))
    used(conversations, "busy").history.add(text("busy", 2 * KIB))
    asked = conversations.get("asked")
    with asked.keep():
        asked.profile = ConversationProfile.of(SessionSettings(instructions=KIB))
        asked.history.add(text("question", KIB))
        assert conversations.get("asked") is asked
    assert conversations.size_bytes == sum(
        conversations.get(name).size_bytes for name in ("busy", "asked")
    )


def test_a_session_that_fails_to_open_leaves_no_conversation() -> None:
    world = World()

    async def main() -> None:
        sessions = Sessions(world.services(), world.conversations, max_sessions=4)
        with pytest.raises(RequestError):
            async with sessions.open(SessionSettings(voice="nobody"), paced_by="server"):
                pass

    before = set(world.conversations._conversations)
    run_virtual(main())
    assert set(world.conversations._conversations) == before


def test_a_one_shot_question_does_not_keep_an_unnamed_conversation() -> None:
    world = World()
    exchanges = OneShotResponses(world.services(), world.conversations, TextLanguageDetector())

    async def main() -> None:
        talk = used(world.conversations, None)
        async with exchanges.open(OneShotRequest("hello", talk.id, "en")):
            pass
        talk.remove_session(talk.sessions[0])
        assert not world.conversations.has(talk.id)

    run_virtual(main())


def test_the_largest_conversation_in_use_shrinks_before_a_small_one() -> None:
    conversations = Conversations(max_bytes=8 * len(KIB))
    large, small = used(conversations, "large"), used(conversations, "small")
    small.history.add(text("kept", KIB))
    for number in range(20):
        large.history.add(text(str(number), KIB))
    assert [item.id for item in small.history.items] == ["kept"]
    assert conversations.size_bytes <= 8 * len(KIB)
    assert large.history.items[-1].id == "19"
    assert conversations.size_bytes == large.size_bytes + small.size_bytes


def test_images_are_dropped_before_text_when_memory_runs_out() -> None:
    conversations = Conversations(max_bytes=4 * len(KIB))
    seeing = used(conversations, "seeing")
    picture = ImagePart("data:image/png;base64," + 3 * KIB)
    seeing.history.add(MessageItem("shown", "user", (TextPart(KIB), picture)))
    seeing.history.add(text("more", KIB))
    [shown, _] = seeing.history.items
    assert isinstance(shown, MessageItem)
    assert (shown.text, shown.images) == (KIB, ())


def test_remembered_instructions_count_towards_the_memory_limit() -> None:
    conversations = Conversations(max_bytes=3 * len(KIB))
    for number in range(10):
        one = conversations.get(str(number))
        one.profile = ConversationProfile.of(SessionSettings(instructions=KIB))
        one.profile = ConversationProfile.of(SessionSettings(instructions=KIB))
    assert conversations.size_bytes == 3 * len(KIB)
    assert conversations.profile_of("9") is not None
    assert conversations.profile_of("0") is None


def test_a_forgotten_conversation_that_is_still_referenced_is_not_counted() -> None:
    conversations = Conversations(max_bytes=len(KIB))
    held = conversations.get("held")
    held.history.add(text("a", KIB))
    conversations.get("next").history.add(text("b", KIB))
    held.history.add(text("c", KIB))
    held.profile = ConversationProfile.of(SessionSettings(instructions=KIB))
    assert conversations.size_bytes == len(KIB)


def test_a_client_secret_is_refused_with_a_reason_if_only_one_session_is_allowed() -> None:
    world = World()

    async def main() -> None:
        sessions = Sessions(world.services(), world.conversations, max_sessions=1)
        opened = sessions.open(
            SessionSettings(), paced_by="server", secret_holder=ClientSecretHolder(b"key", 2)
        )
        with pytest.raises(OverloadedError, match=r"client secrets .* need server\.max_sessions"):
            await opened.__aenter__()
        async with sessions.open(SessionSettings(), paced_by="server"):
            pass

    run_virtual(main())


@pytest.mark.parametrize(
    ("owners", "guests", "owner_code", "guest_code"),
    [
        (0, 0, "", ""),
        (0, 2, "", "too_many_sessions"),
        (1, 1, "", ""),
        (2, 1, "", "server_full"),
        (4, 0, "server_full", "server_full"),
    ],
)
def test_a_client_secret_opens_two_sessions_but_never_takes_the_last_place(
    owners: int, guests: int, owner_code: str, guest_code: str
) -> None:
    guest, world = ClientSecretHolder(b"key", 2), World()

    async def code(sessions: Sessions, by: ClientSecretHolder | None) -> str:
        try:
            async with sessions.open(SessionSettings(), paced_by="server", secret_holder=by):
                return ""
        except OverloadedError as full:
            return full.code

    async def main() -> None:
        sessions = Sessions(world.services(), world.conversations, max_sessions=4)
        async with AsyncExitStack() as stack:
            for by in [*owners * [None], *guests * [guest]]:
                await stack.enter_async_context(
                    sessions.open(SessionSettings(), paced_by="server", secret_holder=by)
                )
            assert await code(sessions, None) == owner_code
            assert await code(sessions, guest) == guest_code
        assert await code(sessions, guest) == ""

    run_virtual(main())
