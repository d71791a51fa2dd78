"""The home as JSON and as a stream of events."""

from collections.abc import AsyncGenerator

import msgspec
import pytest
from aiohttp import ClientResponse

from core.http import streaming
from pipeline.tools.home.state import HomeState
from tests.web.client import Client, with_client
from tests.web.reports import FakeButtons, FakeHome, _home
from web import home as web_home
from web.home import encode_event, home_routes

pytestmark = pytest.mark.live


async def _next_event(answer: ClientResponse) -> tuple[bytes, HomeState]:
    head, number, data, end = [await answer.content.readline() for _ in range(4)]
    assert head == b"event: home\n"
    assert data.startswith(b"data: ")
    assert end == b"\n"
    return number, msgspec.json.decode(data.removeprefix(b"data: "), type=HomeState)


def test_the_home_is_json_with_names_in_the_requested_language() -> None:
    async def use(client: Client) -> None:
        answer = await client.get("/earshot/home?language=de")
        assert answer.headers["Cache-Control"] == "no-store"
        state = msgspec.convert(await answer.json(), HomeState)
        assert state.entities[0].name == "Lampe"

    with_client(home_routes(FakeHome(), FakeButtons()), use)


def test_an_event_is_one_data_line_for_any_name() -> None:
    lines = encode_event(_home(7)).split(b"\n")
    assert lines[:2] == [b"event: home", b"id: 7"]
    assert lines[3:] == [b"", b""]
    assert b"tea\\neggs" in lines[2]


def test_a_watcher_gets_the_home_at_once_and_each_change() -> None:
    home = FakeHome()

    async def use(client: Client) -> None:
        answer = await client.get("/earshot/home/events?language=fr")
        assert answer.headers["Content-Type"] == "text/event-stream"
        assert await _next_event(answer) == (b"id: 1\n", _home(1))
        home.changed.set()
        assert await _next_event(answer) == (b"id: 2\n", _home(2, "on"))
        assert home.asked == ["fr"]

    with_client(home_routes(home, FakeButtons()), use)


def test_an_idle_home_sends_heartbeats_and_a_lost_page_is_freed() -> None:
    home = FakeHome()

    async def use(client: Client) -> None:
        answer = await client.get("/earshot/home/events")
        await _next_event(answer)
        assert await answer.content.readline() == b": still here\n"
        assert home.watchers == 1
        answer.close()
        await home.left.wait()
        assert home.watchers == 0

    with_client(home_routes(home, FakeButtons(), heartbeat_s=0.01), use)


def test_the_number_of_watchers_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web_home, "MAX_WATCHERS", 1)
    home = FakeHome()

    async def use(client: Client) -> None:
        first = await client.get("/earshot/home/events")
        refused = await client.get("/earshot/home/events")
        assert (refused.status, await refused.text()) == (503, "too_many_watchers")
        first.close()
        await home.left.wait()
        assert (await client.get("/earshot/home/events")).status == 200

    with_client(home_routes(home, FakeButtons(), heartbeat_s=0.01), use)


def test_a_page_that_reads_nothing_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "STALL_S", 0.05)

    class Busy(FakeHome):
        """A home that changes all the time, by more than the buffers of sockets hold."""

        async def watch(self, language: str | None = None) -> AsyncGenerator[HomeState, None]:
            try:
                while True:
                    yield _home(1, name="x" * 1_000_000)
            finally:
                self.left.set()

    home = Busy()

    async def use(client: Client) -> None:
        await client.get("/earshot/home/events")
        await home.left.wait()

    with_client(home_routes(home, FakeButtons()), use)


def test_buttons_switch_tick_and_cancel() -> None:
    buttons = FakeButtons()

    async def use(client: Client) -> None:
        home = "/earshot/home"
        answers = [
            await client.put(f"{home}/entities/light.lamp", json={"state": "on"}),
            await client.put(f"{home}/shopping_list/item_1", json={"done": True}),
            await client.delete(f"{home}/timers/timer_1"),
        ]
        assert [answer.status for answer in answers] == [204, 204, 204]
        assert (await client.delete(f"{home}/timers/unknown")).status == 404

    with_client(home_routes(FakeHome(), buttons), use)
    assert buttons.pressed == [
        ("switch", "light.lamp", "on"),
        ("tick", "item_1", True),
        ("cancel", "timer_1", None),
    ]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", "invalid_json"),
        *((body, "invalid_value") for body in (b"{}", b"[]", b'{"state": "dim"}')),
        (b'{"state": "on", "x": 1}', "invalid_value"),
    ],
)
def test_a_wrong_body_of_a_button_says_what_is_wrong(body: bytes, code: str) -> None:
    buttons = FakeButtons()

    async def use(client: Client) -> None:
        answer = await client.put("/earshot/home/entities/light.lamp", data=body)
        assert (answer.status, await answer.text()) == (400, code)

    with_client(home_routes(FakeHome(), buttons), use)
    assert buttons.pressed == []
