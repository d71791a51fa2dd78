"""The keys view of the page, over a real registry: add, copy and revoke; and the page of a key that
may only talk."""

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from aiohttp import web as aioweb
from playwright.sync_api import Browser, Page, expect

from core.access.named_key import SCOPES, NamedKey
from devices.fleet.directory import SessionProfile
from devices.registry.named_keys import NamedKeys
from server.http.named_keys import NamedKeysDoor, named_key_routes
from tests.server.process import run
from tests.server.process import serving as serving_process
from tests.web.browser import serving
from tests.web.page.house import House

pytestmark = pytest.mark.browser


def accept(_: SessionProfile) -> None:
    """Accepts every profile."""


@dataclass
class KeyedHouse(House):
    """The page's server with devices and keys."""

    keys: NamedKeys | None = None
    live: int = 0
    "Sessions that each key has open."

    async def _devices(self, app: aioweb.Application) -> AsyncIterator[None]:
        async for _ in super()._devices(app):
            assert self.known is not None
            self.keys = NamedKeys(self.known.database, self.known.clock)
            for route in named_key_routes(NamedKeysDoor(self.keys, self._count, accept)):
                app.router.add_route(route.method, route.path, route.handler)
            yield

    def _count(self, _: NamedKey) -> int:
        return self.live

    @property
    def named_keys(self) -> NamedKeys:
        assert self.keys is not None
        return self.keys


@pytest.fixture
def house(tmp_path: Path) -> Iterator[KeyedHouse]:
    house = KeyedHouse(database=f"sqlite:///{tmp_path}/devices.db")
    with serving(house):
        yield house


@pytest.fixture
def page(browser: Browser, house: KeyedHouse) -> Iterator[Page]:
    context = browser.new_context(base_url=house.url, locale="en-GB", color_scheme="light")
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    page = context.new_page()
    page.goto("/")
    yield page
    context.close()


def test_a_key_is_added_shown_once_copied_and_revoked(page: Page, house: KeyedHouse) -> None:
    page.get_by_test_id("keys-open").click()
    expect(page.get_by_test_id("key-list")).to_contain_text("no keys besides the server's own")
    page.get_by_test_id("key-name").fill("anna")
    page.get_by_test_id("key-scope-models").check()
    page.get_by_test_id("key-sessions").fill("2")
    house.live = 1
    page.get_by_test_id("key-add").click()
    key = page.get_by_test_id("key-value").inner_text()
    found = house.named_keys.find(key)
    assert found is not None
    assert (found.name, found.scopes, found.max_sessions) == ("anna", ("talk", "models"), 2)
    row = page.get_by_test_id("key")
    expect(row).to_contain_text("talk · change models")
    expect(row).to_contain_text("never used · 1 of 2 sessions now")
    expect(page.get_by_test_id("key-name")).to_have_value("")
    checked = {one: page.get_by_test_id(f"key-scope-{one}").is_checked() for one in SCOPES}
    assert checked == {"talk": True, "manage": False, "models": False}
    page.get_by_test_id("key-copy").click()
    expect(page.get_by_test_id("key-copy")).to_have_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()") == key
    page.get_by_test_id("keys-close").click()
    page.get_by_test_id("keys-open").click()
    expect(row).to_be_visible()
    expect(page.get_by_test_id("key-made")).to_be_hidden()
    assert key not in page.content()
    row.get_by_test_id("key-revoke").click()
    row.get_by_test_id("key-revoke-sure").click()
    expect(page.get_by_test_id("keys-note")).to_contain_text("anna opens nothing any more")
    expect(row).to_have_count(0)
    assert house.named_keys.find(key) is None


def test_the_settings_of_a_key_are_shown_and_changed(page: Page, house: KeyedHouse) -> None:
    profile = SessionProfile(voice="low", speed=0.8, instructions="Be brief.")
    record, _ = house.do(house.named_keys.add("anna", ["talk"], profile=profile))
    page.goto("/#/keys")
    page.reload()
    page.get_by_test_id("key-edit").click()
    expect(page.get_by_test_id("key-voice")).to_have_value("low")
    expect(page.get_by_test_id("key-speed")).to_have_value("0.8")
    expect(page.get_by_test_id("key-instructions")).to_have_value("Be brief.")
    page.get_by_test_id("key-language").fill("German")
    page.get_by_test_id("key-settings-save").click()
    expect(page.get_by_test_id("keys-note")).to_contain_text("That did not work")
    expect(page.get_by_test_id("key-language")).to_have_value("German")
    page.get_by_test_id("key-language").fill("de")
    page.get_by_test_id("key-voice").fill("")
    page.get_by_test_id("key-settings-save").click()
    expect(page.get_by_test_id("key-settings-save")).to_have_count(0)
    expect(page.get_by_test_id("keys-note")).to_be_hidden()
    changed = replace(profile, voice="", language="de")
    assert house.named_keys.profile_of(record.key) == changed


def test_a_refusal_is_shown_and_the_form_keeps_its_text(page: Page, house: KeyedHouse) -> None:
    house.do(house.named_keys.add("anna", ["talk"]))
    page.goto("/#/keys")
    page.reload()
    expect(page.get_by_test_id("key")).to_have_attribute("data-name", "anna")
    page.get_by_test_id("key-name").fill("anna")
    page.get_by_test_id("key-add").click()
    expect(page.get_by_test_id("keys-note")).to_have_attribute("data-bad", "true")
    expect(page.get_by_test_id("keys-note")).to_contain_text("That did not work")
    expect(page.get_by_test_id("key-name")).to_have_value("anna")
    expect(page.get_by_test_id("key-made")).to_be_hidden()


def test_a_key_that_may_only_talk_sees_a_page_without_devices_and_keys(
    browser: Browser, tmp_path: Path
) -> None:
    with serving_process(tmp_path, settings={"EARSHOT_REQUIRE_KEY": "true"}) as server:
        added = run(tmp_path, "keys", "add", "anna", "--url", server.url)
        context = browser.new_context(locale="en-GB")
        page = context.new_page()
        asked: list[str] = []
        page.on("response", lambda one: asked.append(f"{one.status} {one.request.url}"))
        page.goto(server.url)
        message = page.get_by_test_id("message")
        expect(message).to_contain_text("needs a key")
        message.get_by_role("textbox").fill(added.stdout.strip())
        message.get_by_role("button", name="Use").click()
        expect(message).to_be_hidden()
        expect(page.get_by_test_id("engines")).to_contain_text("Whisper")
        page.get_by_test_id("text-input").fill("what time is it")
        page.get_by_test_id("send").click()
        expect(page.get_by_test_id("turns")).to_contain_text("It is")
        expect(page.get_by_test_id("devices-open")).to_be_hidden()
        expect(page.get_by_test_id("keys-open")).to_be_hidden()
        expect(message).to_be_hidden()
        refused = {one.rpartition("/")[2].partition("?")[0] for one in asked if one[:3] == "403"}
        expect(page.get_by_test_id("settings-open")).to_be_hidden()
        assert refused == {"events", "settings"}  # events of the home and of the devices
        assert len([one for one in asked if one[:3] == "403"]) == 3
        admin = run(tmp_path, "keys", "add", "admin", "--scopes", "manage", "--url", server.url)
        managing = context.new_page()
        managing.goto(f"{server.url}/#key={admin.stdout.strip()}")
        expect(managing.get_by_test_id("message")).to_contain_text("not have the scope 'talk'")
        managing.get_by_test_id("keys-open").click()
        expect(managing.get_by_test_id("key")).to_have_count(2)
        run(tmp_path, "keys", "revoke", "anna", "--url", server.url)
        expect(message).to_be_visible()
        context.close()


def test_the_page_begins_in_the_language_of_the_key(browser: Browser, tmp_path: Path) -> None:
    with serving_process(tmp_path, settings={"EARSHOT_REQUIRE_KEY": "true"}) as server:
        added = run(tmp_path, "keys", "add", "anna", "--language", "fr", "--url", server.url)
        context = browser.new_context(locale="en-GB")
        page = context.new_page()
        page.goto(f"{server.url}/#key={added.stdout.strip()}")
        language = page.get_by_test_id("language")
        expect(language).to_have_value("fr")
        language.select_option("en", force=True)
        page.reload()
        expect(page.get_by_test_id("engines")).to_contain_text("Whisper")
        expect(language).to_have_value("en")  # chosen in this browser, which counts more
        context.close()
