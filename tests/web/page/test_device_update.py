"""The update button of the devices view, with a real connection: the board fetches the image."""

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from aiohttp import ClientSession
from aiohttp import web as aioweb
from playwright.sync_api import Browser, Page, expect

from devices.api.door import DevicesDoor
from devices.api.event_log import DeviceEventLog
from devices.api.routes import routes
from devices.notices.announcements import Announcements
from devices.xiaozhi.routes import routes as xiaozhi_routes
from devices.xiaozhi.settings import XiaozhiSettings
from tests.devices.registry.harness import known
from tests.devices.xiaozhi.servers import LOOPBACK, Scene
from tests.devices.xiaozhi.simulated_board import Board
from tests.web.browser import Stub, serving

pytestmark = pytest.mark.browser

BOARD = "bread-compact-wifi"


@dataclass
class House(Stub):
    """The page's server with the API of boards and one board."""

    folder: Path = field(default_factory=Path)
    board: Board | None = None

    def app(self) -> aioweb.Application:
        app = super().app()
        app.cleanup_ctx.append(self._devices)
        return app

    @property
    def firmware(self) -> Path:
        return self.folder / "firmware"

    async def _devices(self, app: aioweb.Application) -> AsyncIterator[None]:
        async with known(f"sqlite:///{self.folder}/devices.db") as here:
            settings = XiaozhiSettings(networks=LOOPBACK, folder=self.firmware)
            scene = Scene(settings=settings)
            scene.directory = here.registry
            boards = scene.door()
            said = Announcements(scene.conversations, here.registry, scene.presence, here.clock)
            images = {"xiaozhi": boards.images.folder}
            journal = DeviceEventLog(here.clock)
            door = DevicesDoor(
                here.registry,
                scene.presence,
                journal,
                said,
                lambda profile: None,
                lambda notice: None,
                images,  # type: ignore[arg-type]
            )
            for route in (*routes(door), *xiaozhi_routes(boards)):
                app.router.add_route(route.method, route.path, route.handler)
            yield

    async def connect(self) -> None:
        self.board = board = Board(ClientSession(self.url))
        await board.boot()
        await board.open()
        await board.turn("one")  # it has told its tools meanwhile

    async def leave(self) -> None:
        assert self.board is not None
        await self.board.hang_up()
        await self.board.http.close()


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    house = House(folder=tmp_path)
    with serving(house):
        house.do(house.connect())
        yield house
        house.do(house.leave())


@pytest.fixture
def page(browser: Browser, house: House) -> Iterator[Page]:
    context = browser.new_context(base_url=house.url, locale="en-GB")
    page = context.new_page()
    page.goto("/")
    page.get_by_test_id("devices-open").click()
    yield page
    context.close()


def test_a_board_gets_the_chosen_version(page: Page, house: House) -> None:
    for version in ("2.5.0", "2.4.2"):
        (house.firmware / version).mkdir(parents=True)
        (house.firmware / version / f"{BOARD}.bin").write_bytes(version.encode())
    page.get_by_test_id("device-update").click()
    versions = page.get_by_test_id("firmware")
    expect(versions).to_have_value("2.5.0")
    expect(versions.locator("option")).to_have_text(["2.5.0", "2.4.2 (what it has)"])
    page.get_by_test_id("update-send").click()
    expect(page.get_by_test_id("devices-note")).to_contain_text("was told to update")
    assert house.board is not None
    house.do(house.board.fetched(1))
    assert house.board.images == [b"2.5.0"]


def test_the_view_names_the_folder_for_images(page: Page, house: House) -> None:
    page.get_by_test_id("device-update").click()
    place = str(house.firmware / "VERSION" / f"{BOARD}.bin")
    expect(page.get_by_test_id("no-firmware")).to_contain_text(place)
    page.get_by_role("button", name="Cancel").click()
    expect(page.get_by_test_id("no-firmware")).to_have_count(0)
