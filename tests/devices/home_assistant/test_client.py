"""The client and a Home Assistant that is up, down, slow, odd, or refuses the token."""

import asyncio
import json
import logging

import pytest

from core.tasks import Backoff
from devices.home_assistant.client import ConnectionState
from devices.home_assistant.entities import EntityMirror
from devices.home_assistant.errors import (
    HomeAssistantAccessError,
    HomeAssistantTimeout,
    HomeAssistantUnreachable,
)
from pipeline.tools.home import Home, HomeConfig
from tests.devices.home_assistant.fake_server import answered, fake_home, light
from tests.devices.home_assistant.harness import client, reached, run, until

pytestmark = pytest.mark.live


def test_the_client_connects_and_fetches_the_names() -> None:
    async def main() -> None:
        entities = [
            light("Kitchen Lights", "kitchen", aliases=["cooking light"]),
            light("Secret Light", exposed=False),
        ]
        areas = [{"area_id": "kitchen", "name": "Kitchen", "aliases": ["galley"]}]
        async with fake_home(entities=entities, areas=areas) as home, client(home) as house:
            assert house.state is ConnectionState.CONNECTED
            assert [one.names for one in house.house.entities] == [
                ("Kitchen Lights", "cooking light")
            ]
            assert house.house.areas[0].names == ("Kitchen", "galley")
            assert house.house.keywords(3) == ("Kitchen", "Kitchen Lights", "galley")
            assert home.features == [{"coalesce_messages": 1}]
            assert home.ids == sorted(set(home.ids))
            assert home.ids[0] == 1

    run(main())


def test_a_user_without_admin_rights_gets_the_same_names() -> None:
    async def main() -> None:
        entities = [light("Kitchen Lights"), light("Secret Light", exposed=False)]
        async with (
            fake_home(entities=entities, is_admin=False) as home,
            client(home) as house,
        ):
            assert [one.names for one in house.house.entities] == [("Kitchen Lights",)]

    run(main())


def test_names_are_fetched_again_after_a_registry_event() -> None:
    async def main() -> None:
        async with fake_home() as home, client(home) as house:
            home.entities.append(light("Porch Light"))
            for _ in range(50):
                await home.tell("entity_registry_updated")
            await until(lambda: "Porch Light" in house.house.keywords(10))
            lists = len(home.ids)
            assert lists < 50, "fifty events are one change"

    run(main())


def test_the_number_of_entities_is_limited() -> None:
    async def main() -> None:
        entities = [light(f"Lamp {number}") for number in range(5000)]
        async with fake_home(entities=entities) as home, client(home) as house:
            assert len(house.house.entities) == 2000
            assert house.house.left_out == 3000

    run(main())


@pytest.mark.parametrize("is_banned", [False, True])
def test_a_refused_token_is_not_tried_again(
    caplog: pytest.LogCaptureFixture, *, is_banned: bool
) -> None:
    async def main() -> None:
        async with fake_home(is_banned=is_banned) as home, client(home, token="wrong") as house:
            assert house.state is ConnectionState.REFUSED
            with pytest.raises(HomeAssistantAccessError):
                await house.converse("hello", "en", None)
            assert home.logins == (0 if is_banned else 1)

    with caplog.at_level(logging.INFO):
        run(main())
    errors = [one for one in caplog.records if one.levelno >= logging.WARNING]
    assert len(errors) == 1
    assert "home_assistant.token" in errors[0].getMessage()
    assert "wrong" not in errors[0].getMessage()


def test_a_revoked_token_ends_the_client() -> None:
    async def main() -> None:
        async with fake_home() as home, client(home) as house:
            home.token = "another"
            await home.hang_up()
            await reached(house, ConnectionState.REFUSED)
            assert home.logins == 2

    run(main())


def test_a_token_refused_over_rest_ends_the_client() -> None:
    async def main() -> None:
        async with fake_home(has_websocket=False, token="another") as home, client(home) as house:
            assert house.state is ConnectionState.AWAY
            with pytest.raises(HomeAssistantAccessError):
                await house.converse("hello", "en", None)
            await reached(house, ConnectionState.REFUSED)
            with pytest.raises(HomeAssistantAccessError):
                await house.converse("hello", "en", None)
            assert home.logins == 1

    run(main())


def test_without_websocket_sentences_go_over_rest() -> None:
    async def main() -> None:
        async with fake_home(has_websocket=False) as home, client(home) as house:
            answer = await house.converse("turn it on", "de", None)
            assert answer.speech == "Done"
            assert home.sentences == [
                {
                    "text": "turn it on",
                    "language": "de",
                    "agent_id": "conversation.home_assistant",
                    "via": "rest",
                }
            ]

    run(main())


def test_the_client_reconnects_after_a_restart() -> None:
    async def main() -> None:
        async with fake_home() as home, client(home) as house:
            await home.stop()
            await reached(house, ConnectionState.AWAY)
            with pytest.raises(HomeAssistantUnreachable):
                await house.converse("hello", "en", None)
            await home.start()
            await reached(house, ConnectionState.CONNECTED)
            assert (await house.converse("hello", "en", None)).speech == "Done"

    run(main())


def test_a_successful_rest_call_ends_the_backoff() -> None:
    async def main() -> None:
        async with fake_home(has_websocket=False) as home, client(home) as house:
            house._backoff = Backoff((60,))
            await until(lambda: house.state is ConnectionState.AWAY)
            home.has_websocket = True
            await house.converse("hello", "en", None)
            await reached(house, ConnectionState.CONNECTED)

    run(main())


def test_a_slow_sentence_times_out() -> None:
    async def main() -> None:
        async with fake_home() as home, client(home, timeout_s=0.05) as house:
            home.released.clear()
            with pytest.raises(HomeAssistantTimeout):
                await house.converse("hello", "en", None)
            home.released.set()
            assert (await house.converse("hello", "en", None)).speech == "Done"

    run(main())


def test_a_cancelled_sentence_leaves_nothing_behind() -> None:
    async def main() -> None:
        async with fake_home() as home, client(home) as house:
            home.released.clear()
            asking = asyncio.create_task(house.converse("hello", "en", None))
            await home.asked.wait()
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
            home.released.set()
            assert (await house.converse("again", "en", None)).speech == "Done"
            assert house.state is ConnectionState.CONNECTED

    run(main())


def test_a_sentence_cut_by_a_lost_connection_fails_and_is_not_repeated() -> None:
    async def main() -> None:
        async with fake_home() as home, client(home) as house:
            home.released.clear()
            asking = asyncio.create_task(house.converse("hello", "en", None))
            await home.asked.wait()
            await home.hang_up()
            with pytest.raises(HomeAssistantUnreachable):
                await asking
            assert len(home.sentences) == 1

    run(main())


@pytest.mark.parametrize(
    "frame",
    [
        "no json",
        "7",
        '{"id": 3}',
        '[{"type": "result", "id": "three"}]',
        "[" * 5000,
        json.dumps([{"type": "result", "id": 1, "success": True}] * 10_001),
    ],
)
def test_garbage_ends_the_connection_and_the_client_reconnects(frame: str) -> None:
    async def main() -> None:
        async with fake_home() as home, client(home) as house:
            await home.send(frame)
            await until(lambda: home.logins == 2 and house.state is ConnectionState.CONNECTED)
            assert (await house.converse("hello", "en", None)).speech == "Done"

    run(main())


@pytest.mark.parametrize("greeting", ["garbage", '{"type": "hello"}', "[]"])
def test_an_unknown_greeting_is_not_home_assistant(greeting: str) -> None:
    async def main() -> None:
        async with fake_home(greets_with=greeting) as home, client(home) as house:
            assert house.state is ConnectionState.AWAY
            assert home.logins == 0, "the token is for Home Assistant alone"

    run(main())


def test_a_malformed_answer_is_an_error() -> None:
    from core.errors import RemoteProtocolError

    async def main() -> None:
        async with fake_home(answer=lambda _: {"odd": 1}) as home, client(home) as house:
            with pytest.raises(RemoteProtocolError):
                await house.converse("hello", "en", None)
            home.answer = lambda _: answered("Fine")
            assert (await house.converse("hello", "en", None)).speech == "Fine"

    run(main())


def test_the_page_shows_the_states_of_its_entities() -> None:
    async def main() -> None:
        shown = Home(HomeConfig())
        areas = [{"area_id": "kitchen", "name": "Kitchen", "aliases": []}]
        entities = [
            light("Kitchen Lights", "kitchen"),
            {"id": "cover.blind", "name": "Blind", "area": ""},
            {"id": "vacuum.robot", "name": "Robot", "area": "kitchen"},
        ]
        async with (
            fake_home(entities=entities, areas=areas) as home,
            client(home, mirror=EntityMirror(shown)),
        ):
            await until(lambda: bool(home.watched))
            assert list(home.watched.values()) == [["cover.blind", "light.kitchen_lights"]]
            await home.show(a={"light.kitchen_lights": {"s": "on", "a": {"brightness": 127}}})
            await home.show(c={"cover.blind": {"+": {"s": "opening", "a": {"odd": [1]}}}})
            await home.show(a=7, c={"light.other": {"+": {"s": "on"}}, "cover.blind": 3})
            blind = "cover.blind"
            await until(lambda: shown.entity(blind).state == "open")
            lamp = shown.entity("light.kitchen_lights")
            assert (lamp.state, lamp.attributes["brightness"]) == ("on", 50)
            told = {one.id: one.area for one in shown.snapshot("de").entities}
            assert told == {"light.kitchen_lights": "kitchen", "cover.blind": "no_area"}
            home.entities.append(light("Porch Light"))
            await home.tell("entity_registry_updated")
            await until(lambda: len(home.watched) == 1 and len(*home.watched.values()) == 3)
            assert shown.entity(blind).state == "open", "what stays keeps its state"

    run(main())


def test_a_home_without_entities_for_the_page_still_works() -> None:
    async def main() -> None:
        shown = Home(HomeConfig())
        areas = [{"area_id": "no_area", "name": "No Area"}] * 2
        entities = [light("Porch Light"), light("Hall Light", "no_area")]
        async with (
            fake_home(entities=entities, areas=areas) as home,
            client(home, mirror=EntityMirror(shown)) as house,
        ):
            assert (await house.converse("hello", "en", None)).speech == "Done"
            del areas[0], home.areas[1:]
            await home.tell("area_registry_updated")
            await until(lambda: bool(home.watched))
            huge = {"brightness": 10**400}
            await home.show(a={"light.hall_light": {"s": "on", "a": huge}})
            await until(lambda: shown.entity("light.hall_light").state == "on")
            assert {one.area for one in shown.snapshot("en").entities} == {"no_area"}
            assert (home.logins, house.state) == (1, ConnectionState.CONNECTED)

    run(main())
