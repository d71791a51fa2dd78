"""The settings view of the page, over the real routes and a real file."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web as aioweb
from playwright.sync_api import Browser, Page, Playwright, expect

from core.errors import Conflict, RequestError
from server.settings.language_models import LanguageModelFinder
from server.settings.routes import SettingsDoor, settings_routes
from tests.server.settings.harness import Host, service
from tests.web.browser import Stub, launched, serving

pytestmark = pytest.mark.browser

FILE = """\
# ours
[llm]
engine = "hybrid"
[llm.options.model.options]
base_url = "http://127.0.0.1:9/v1"
api_key = "sk-hush"
"""
BASE_URL = "llm.options.model.options.base_url"


@pytest.fixture(scope="module")
def full_browser(playwright: Playwright) -> Iterator[Browser]:
    """Chromium itself: its shell gives the microphones new names at each load of the page."""
    with launched(playwright) as started:
        yield started


@dataclass
class Server(Stub):
    """The page's server with settings, a voice and a language model."""

    folder: Path = Path()
    environ: dict[str, str] = field(default_factory=dict)
    spoken: list[dict[str, Any]] = field(default_factory=list)
    heard: list[str] = field(default_factory=list)
    "Samples of voices that were asked for: path and query."
    tested: list[dict[str, Any]] = field(default_factory=list)
    houses: list[dict[str, str]] = field(default_factory=list)
    "Addresses that the search for Home Assistant finds."
    refusal: str = ""
    "Reason with which a restart is refused."
    restarts: int = 0
    settings_door: SettingsDoor = field(init=False)

    @property
    def file(self) -> Path:
        return self.folder / "earshot.toml"

    def app(self) -> aioweb.Application:
        app = super().app()
        self.settings_door = self.started(FILE)
        for route in settings_routes(self.settings_door):
            handler = {
                "/v1/settings/language-models/search": self.search,
                "/v1/settings/language-models/test": self.test,
                "/v1/settings/home-assistant/search": self.find_house,
            }.get(route.path, refusing(self.now(route.handler.__name__)))
            app.router.add_route(route.method, route.path, handler)
        app.router.add_post("/v1/audio/speech", self.speak)
        app.router.add_get("/v1/audio/voices", self.list_voices)
        app.router.add_get("/v1/audio/voices/{id:.+}/sample", self.sample)
        app.router.add_post("/v1/server/restart", refusing(self.restart))
        return app

    def started(self, text: str | None) -> SettingsDoor:
        """Returns the settings of a server that starts with this file; None: with the present."""
        settings = service(self.folder, text, environ=self.environ)
        return SettingsDoor(settings, LanguageModelFinder(ports={}))

    def now(self, name: str) -> Any:
        """Returns a handler that asks the server of the moment."""

        async def handle(request: aioweb.Request) -> aioweb.Response:
            answer: aioweb.Response = await getattr(self.settings_door, name)(request)
            return answer

        return handle

    async def restart(self, _: aioweb.Request) -> aioweb.Response:
        if self.refusal:
            raise Conflict(self.refusal, code="cannot_restart")
        self.restarts += 1
        self.settings_door = self.started(None)
        return aioweb.json_response({"drain_timeout_s": 1.0}, status=202)

    async def speak(self, request: aioweb.Request) -> aioweb.Response:
        self.spoken.append(await request.json())
        return aioweb.Response(body=SILENCE, content_type="audio/wav")

    async def list_voices(self, _: aioweb.Request) -> aioweb.Response:
        voice = {"id": "heart", "name": "heart", "language": "en", "gender": "female"}
        return aioweb.json_response({"voices": [{**voice, "engine": "hibari"}]})

    async def sample(self, request: aioweb.Request) -> aioweb.Response:
        self.heard.append(request.path_qs)
        return aioweb.Response(body=SILENCE, content_type="audio/wav")

    async def search(self, _: aioweb.Request) -> aioweb.Response:
        found = {"name": "Ollama", "base_url": "http://127.0.0.1:11434/v1", "models": ["qwen"]}
        return aioweb.json_response({"servers": [found], "tried": []})

    async def find_house(self, _: aioweb.Request) -> aioweb.Response:
        return aioweb.json_response({"servers": self.houses})

    async def test(self, request: aioweb.Request) -> aioweb.Response:
        self.tested.append(await request.json())
        answer = {"text": "Hello there.", "model": "qwen", "first_ms": 5, "took_ms": 9}
        return aioweb.json_response(answer)


SILENCE = (
    b"RIFF\x44\x00\x00\x00WAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00\x40\x1f\x00\x00\x80\x3e\x00\x00"
    b"\x02\x00\x10\x00data\x20\x00\x00\x00" + bytes(32)
)


def refusing(handler: Any) -> Any:
    """Answers errors as the real server does."""

    async def run(request: aioweb.Request) -> aioweb.StreamResponse:
        try:
            answer: aioweb.StreamResponse = await handler(request)
        except RequestError as error:
            status = 409 if isinstance(error, Conflict) else 400
            told = {"code": error.code, "message": str(error), "param": error.param}
            return aioweb.json_response({"error": told}, status=status)
        return answer

    return run


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(folder=tmp_path, environ={"EARSHOT_TURN__SILENCE_MS": "700"})
    with serving(server):
        yield server


@pytest.fixture
def page(browser: Browser, server: Server) -> Iterator[Page]:
    with page_in(browser, server) as page:
        yield page


@pytest.fixture
def full_page(full_browser: Browser, server: Server) -> Iterator[Page]:
    with page_in(full_browser, server) as page:
        yield page


@contextmanager
def page_in(browser: Browser, server: Server) -> Iterator[Page]:
    context = browser.new_context(
        base_url=server.url, locale="en-GB", color_scheme="light", permissions=["microphone"]
    )
    page = context.new_page()
    page.on("pageerror", lambda error: pytest.fail(str(error)))
    page.goto("/")
    yield page
    context.close()


def setting(page: Page, key: str) -> Any:
    return page.get_by_test_id(f"setting {key}")


def opened(page: Page) -> None:
    page.get_by_test_id("settings-open").click()
    expect(setting(page, "assistant.voice")).to_be_visible()


def test_a_voice_is_changed_heard_and_saved(page: Page, server: Server) -> None:
    opened(page)
    setting(page, "assistant.voice").select_option(label="English: heart (hibari, female)")
    page.get_by_test_id("voice-sample").click()
    page.get_by_test_id("settings-send").click()
    diff = page.get_by_test_id("settings-diff")
    expect(diff).to_contain_text('+voice = "heart"')
    expect(diff).to_be_focused()
    assert server.file.read_text() == FILE
    page.get_by_test_id("settings-send").click()
    expect(page.get_by_test_id("settings-note")).to_contain_text("Saved")
    assert server.file.read_text() == FILE + '\n[assistant]\nvoice = "heart"\n'
    assert server.heard == ["/v1/audio/voices/heart/sample?speed=1"]
    page.reload()
    expect(setting(page, "assistant.voice")).to_have_value("heart")


def test_what_waits_for_a_restart_gets_it_by_a_click(page: Page, server: Server) -> None:
    opened(page)
    button = page.get_by_test_id("server-restart")
    expect(button).to_have_count(0)
    setting(page, BASE_URL).fill("http://127.0.0.1:10/v1")
    setting(page, BASE_URL.replace("base_url", "api_key")).fill("sk-new")
    page.get_by_test_id("settings-send").click()
    expect(page.get_by_test_id("settings-diff")).to_be_visible()
    page.get_by_test_id("settings-send").click()
    server.refusal = "the port is in use"
    button.click()
    expect(page.get_by_text("the port is in use")).to_be_visible()
    expect(button).to_have_attribute("aria-disabled", "false")
    server.refusal = ""
    button.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_test_id("settings-note")).to_contain_text("runs with the saved settings")
    expect(button).to_have_count(0)
    expect(page.get_by_test_id("settings-close")).to_be_focused()
    assert server.restarts == 1


def test_the_keyboard_alone_is_enough(page: Page, server: Server) -> None:
    expect(page.get_by_test_id("settings-open")).to_be_visible()  # a hidden button takes no focus
    page.get_by_test_id("settings-open").focus()
    page.keyboard.press("Enter")
    speed = setting(page, "assistant.speed")
    for _ in range(20):
        if speed.evaluate("(element) => element === document.activeElement"):
            break
        page.keyboard.press("Tab")
    expect(speed).to_be_focused()
    page.keyboard.press("ControlOrMeta+a")
    page.keyboard.type("1.2")
    page.keyboard.press("Enter")
    expect(page.get_by_test_id("settings-diff")).to_be_focused()
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    expect(page.get_by_test_id("settings-send")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_test_id("settings-note")).to_contain_text("Saved")
    assert "speed = 1.2" in server.file.read_text()
    page.keyboard.press("Escape")
    expect(page.get_by_test_id("settings")).to_be_hidden()
    expect(page.get_by_test_id("settings-open")).to_be_focused()


def test_a_wrong_value_is_named_beside_its_field(page: Page, server: Server) -> None:
    opened(page)
    setting(page, "assistant.speed").fill("9")
    page.get_by_test_id("settings-send").click()
    speed = setting(page, "assistant.speed")
    expect(speed).to_be_focused()
    expect(speed).to_have_attribute("aria-invalid", "true")
    expect(page.get_by_test_id("settings-fields")).to_contain_text("expected number in [0.25, 1.5]")
    speed.fill("1.3")
    expect(page.get_by_test_id("settings-fields")).not_to_contain_text("expected number in")
    assert server.file.read_text() == FILE


def test_every_field_has_a_label_and_says_what_it_does(page: Page) -> None:
    opened(page)
    for summary in page.get_by_test_id("settings-fields").locator("summary").all():
        summary.click()
    fields = page.get_by_test_id("settings-fields").locator("input, select, textarea").all()
    assert len(fields) > 20
    for one in fields:
        assert one.evaluate("(element) => element.labels.length") == 1
        about = (one.get_attribute("aria-describedby") or "").split()
        assert all(page.locator(f"#{name}").count() == 1 for name in about)


def test_a_secret_is_not_shown_and_stays_if_left_alone(page: Page, server: Server) -> None:
    opened(page)
    key = setting(page, "llm.options.model.options.api_key")
    expect(key).to_have_attribute("type", "password")
    expect(key).to_have_value("")
    setting(page, "llm.options.model.options.model").fill("qwen")
    page.get_by_test_id("settings-send").click()
    expect(page.get_by_test_id("settings-diff")).to_contain_text("qwen")
    assert "sk-hush" not in page.content()
    page.get_by_test_id("settings-send").click()
    expect(page.get_by_test_id("settings-note")).to_contain_text("started again")
    assert 'api_key = "sk-hush"' in server.file.read_text()


def test_an_overridden_setting_cannot_be_changed(page: Page) -> None:
    opened(page)
    page.get_by_test_id("settings-fields").get_by_text("When your turn ends").click()
    silence = setting(page, "turn.silence_ms")
    expect(silence).to_be_disabled()
    expect(silence).to_have_value("700")
    expect(page.get_by_test_id("settings-fields")).to_contain_text("EARSHOT_TURN__SILENCE_MS")


def test_a_language_model_is_found_tested_and_heard(page: Page, server: Server) -> None:
    opened(page)
    page.get_by_test_id("model-search").click()
    page.get_by_test_id("model-offer").click()
    expect(setting(page, BASE_URL)).to_have_value("http://127.0.0.1:11434/v1")
    page.get_by_test_id("model-test").click()
    expect(page.get_by_test_id("settings-fields")).to_contain_text("“Hello there.” (9 ms)")
    assert server.tested[0]["model"] == "qwen"
    assert "api_key" not in server.tested[0]
    page.get_by_test_id("settings-send").click()
    expect(page.get_by_test_id("settings-fields")).to_contain_text("belongs to another address")


def test_home_assistant_is_found_and_its_address_taken(page: Page, server: Server) -> None:
    opened(page)
    page.locator("summary", has_text="Home Assistant").click()
    page.get_by_test_id("house-search").click()
    expect(page.get_by_text("No Home Assistant has answered")).to_be_visible()
    server.houses = [{"name": "Our house", "url": "http://192.0.2.7:8123"}]
    page.get_by_test_id("house-search").click()
    page.get_by_test_id("house-offer").click()
    expect(setting(page, "home_assistant.url")).to_have_value("http://192.0.2.7:8123")
    expect(setting(page, "home_assistant.token")).to_have_value("")


def test_another_engine_shows_its_own_fields(page: Page) -> None:
    opened(page)
    setting(page, "llm.engine").select_option("openai")
    expect(setting(page, "llm.options.base_url")).to_be_visible()
    expect(setting(page, BASE_URL)).to_have_count(0)
    setting(page, "llm.engine").select_option("hybrid")
    expect(setting(page, BASE_URL)).to_have_value("http://127.0.0.1:9/v1")
    expect(page.get_by_test_id("settings-send")).to_be_disabled()


def test_a_file_that_changed_meanwhile_is_read_again(page: Page, server: Server) -> None:
    opened(page)
    setting(page, "assistant.speed").fill("1.2")
    page.get_by_test_id("settings-send").click()
    expect(page.get_by_test_id("settings-diff")).to_be_visible()
    server.file.write_text(FILE + "[turn]\neagerness = 'low'\n")
    page.get_by_test_id("settings-send").click()
    expect(page.get_by_test_id("settings-note")).to_contain_text("changed meanwhile")
    expect(setting(page, "assistant.speed")).to_have_value("1.2")
    page.get_by_test_id("settings-send").click()
    expect(page.get_by_test_id("settings-diff")).to_be_visible()
    page.get_by_test_id("settings-send").click()
    expect(page.get_by_test_id("settings-note")).to_contain_text("Saved")
    assert "eagerness = 'low'" in server.file.read_text()


def test_the_form_fits_a_phone(page: Page) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    opened(page)
    for summary in page.get_by_test_id("settings-fields").locator("summary").all():
        summary.click()
    page.get_by_test_id("settings-fields").get_by_text("EARSHOT_TURN__SILENCE_MS").wait_for()
    wide = page.get_by_test_id("settings").evaluate("(one) => one.scrollWidth - one.clientWidth")
    assert wide == 0


def test_the_microphone_is_chosen_in_the_browser(full_page: Page, server: Server) -> None:
    full_page.evaluate(
        """() => {
          window.asked = [];
          const real = navigator.mediaDevices.getUserMedia.bind(navigator.mediaDevices);
          navigator.mediaDevices.getUserMedia = (wanted) => {
            window.asked.push(wanted.audio.deviceId?.ideal ?? "");
            return real(wanted);
          };
        }"""
    )
    opened(full_page)
    microphone = setting(full_page, "microphone")
    expect(microphone.locator("option")).to_have_count(3)
    microphone.select_option(index=2)
    chosen = microphone.input_value()
    full_page.keyboard.press("Escape")
    full_page.get_by_test_id("mic").click()
    full_page.wait_for_function("window.asked.length > 0")
    assert full_page.evaluate("window.asked") == [chosen]
    full_page.keyboard.press("Escape")
    full_page.reload()
    opened(full_page)
    expect(microphone).to_have_value(chosen)
    assert server.file.read_text() == FILE


def test_the_room_of_the_browser_is_kept_and_said_in_the_next_call(
    full_page: Page, server: Server
) -> None:
    opened(full_page)
    room = full_page.get_by_test_id("setting room")
    room.fill(" Kitchen ")
    room.press("Tab")
    full_page.keyboard.press("Escape")
    with full_page.expect_response("**/v1/realtime/calls"):
        full_page.get_by_test_id("mic").click()
    assert server.sessions[-1]["earshot"]["area"] == "Kitchen"
    full_page.keyboard.press("Escape")
    full_page.reload()
    opened(full_page)
    expect(room).to_have_value("Kitchen")
    assert server.file.read_text() == FILE


def test_the_answer_and_the_sample_are_heard_from_the_chosen_speaker(
    full_page: Page, server: Server
) -> None:
    full_page.evaluate(
        """() => {
          window.contexts = [];
          const Real = AudioContext;
          window.AudioContext = function (options) {
            window.contexts.push(new Real(options));
            return window.contexts[0];
          };
        }"""
    )
    opened(full_page)
    speaker = setting(full_page, "speaker")
    expect(speaker.locator("option")).to_have_count(3)
    speaker.select_option(index=2)
    chosen = speaker.input_value()
    assert chosen
    voice = full_page.locator("#voice")
    expect(voice).to_have_js_property("sinkId", chosen)
    with full_page.expect_response("**/v1/audio/voices/*/sample?speed=1"):
        full_page.get_by_test_id("voice-sample").click()
    assert full_page.evaluate("window.contexts.map((one) => one.sinkId)") == [chosen]
    later = full_page.context.new_page()
    later.goto(full_page.url)
    expect(later.locator("#voice")).to_have_js_property("sinkId", chosen)
    later.close()
    speaker.select_option(value="")
    expect(voice).to_have_js_property("sinkId", "")
    assert server.file.read_text() == FILE


def test_a_speaker_that_is_gone_is_replaced_by_that_of_the_system(full_page: Page) -> None:
    opened(full_page)
    speaker = setting(full_page, "speaker")
    speaker.select_option(index=1)
    voice = full_page.locator("#voice")
    expect(voice).to_have_js_property("sinkId", speaker.input_value())
    speaker.locator("option").nth(2).evaluate("(one) => { one.value = 'gone'; }")
    speaker.select_option(value="gone")
    expect(voice).to_have_js_property("sinkId", "")


def _texts_of(folder: Path, words: dict[str, Any]) -> set[str]:
    """Returns the English texts of the server's form that `words` does not translate."""
    texts = set()
    openai = '[llm]\nengine = "openai"\n[llm.options]\nbase_url = "http://127.0.0.1:9/v1"\n'
    for file in (FILE, openai):
        for one in service(folder, file).report().fields:
            is_option = one.key.startswith("llm.options.")
            name = one.key.split(".")[-1] if is_option else one.key.replace(".", "_")
            texts |= {one.help} | ({one.label} if f"set_{name}" not in words else set())
            if one.key not in Host().choices():
                values = {choice.value for choice in one.choices} - {"auto"}
                texts |= {value for value in values if f"set_choice_{value}" not in words}
    return texts


def test_every_text_of_the_form_is_translated(page: Page, tmp_path: Path) -> None:
    english = page.evaluate("import('/static/words/en.js').then(({ EN }) => EN)")
    folder = tmp_path / "form"
    folder.mkdir()
    needed = _texts_of(folder, english)
    for language in ("de", "fr", "es", "it", "nl", "pt", "zh"):
        texts = page.evaluate(
            "(one) => import(`/static/words/settings/${one}.js`).then((m) => m.SETTING_TEXTS)",
            language,
        )
        assert set(texts) == needed, language
        same = [text for text, translated in texts.items() if text == translated]
        assert not [text for text in same if len(text) > 12], language
        for text, translated in texts.items():
            code = sorted(re.findall(r"`[^`]+`|https?://\S+[0-9]|\w+_\w+_\w+", text))
            assert [one for one in code if one not in translated] == [], language


def test_the_form_speaks_the_language_of_the_page(page: Page) -> None:
    page.get_by_test_id("page-language").select_option("de")
    opened(page)
    speed = page.get_by_test_id("setting assistant.speed")
    expect(speed).to_have_accessible_description(re.compile("^Sprechtempo der Stimme"))
    page.get_by_text("Mehr zu Gesprächen").click()
    barge_in = page.get_by_label("Unterbrechen durch Sprechen")
    expect(barge_in.locator("option:checked")).to_have_text("An")
