"""The studio view of the page, over the real door of speech with a scripted voice."""

import wave
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field

import pytest
from aiohttp import web as aioweb
from playwright.sync_api import Browser, Locator, Page, expect

from core.errors import EarshotError, expected_failure
from engines.base import TtsInfo
from pipeline.speech.file import SpeechFiles
from server.http.edge import error_response
from tests.web.browser import Stub, serving
from tests.web.openai.speech.harness import HeldTts, speech_door, until
from web.openai.routes import speech_routes
from web.openai.speech.fields import MAX_INPUT_CHARS
from web.openai.speech.samples import sample_text

pytestmark = pytest.mark.browser

HAS_INK = """(canvas) => {
  const { width, height } = canvas;
  return canvas.getContext("2d").getImageData(0, 0, width, height).data.some(Boolean);
}"""

SOMEBODY_ELSE = """() => {
  const headers = { "Content-Type": "application/json" };
  const body = JSON.stringify({ model: "default", voice: "low", input: "Mine." });
  fetch("/v1/audio/speech", { method: "POST", headers, body });
}"""

Handler = Callable[[aioweb.Request], Awaitable[aioweb.StreamResponse]]


def refusing(handler: Handler) -> Handler:
    """Answers errors as the real server does."""

    async def run(request: aioweb.Request) -> aioweb.StreamResponse:
        try:
            return await handler(request)
        except (EarshotError, ExceptionGroup) as error:
            expected = expected_failure(error)
            if expected is None:
                raise
            return error_response(expected)

    return run


@dataclass
class Server(Stub):
    """The page's server, which speaks one text at a time."""

    tts: HeldTts = field(default_factory=HeldTts)
    files: SpeechFiles = field(init=False)

    def app(self) -> aioweb.Application:
        app = super().app()
        door, self.files = speech_door(self.tts, max_parallel=1)
        for route in speech_routes(door):
            app.router.add_route(route.method, route.path, refusing(route.handler))
        return app

    def wait_until_silent(self) -> None:
        """Waits until no text is spoken."""
        self.do(until(lambda: self.files.count == 0))


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    with serving(server):
        yield server


@pytest.fixture
def page(browser: Browser, server: Server) -> Iterator[Page]:
    context = browser.new_context(
        base_url=server.url, locale="en-GB", viewport={"width": 390, "height": 844}
    )
    page = context.new_page()
    page.on("pageerror", lambda error: pytest.fail(str(error)))
    page.goto("/#/studio")
    expect(voice_of(page, "default")).to_be_visible()
    yield page
    context.close()


def voice_of(page: Page, voice: str) -> Locator:
    return page.locator(f"[data-voice='{voice}']")


def test_a_text_waits_in_line_is_heard_measured_and_saved(page: Page, server: Server) -> None:
    voices, state = page.get_by_test_id("studio-voice"), page.get_by_test_id("studio-state")
    expect(voices).to_have_count(3)  # those in English, the language of the browser
    expect(voice_of(page, "tone/low")).to_have_text("low tone, male")
    page.get_by_test_id("studio-text-input").fill("Hello there.")
    voice_of(page, "tone/high").get_by_role("radio").check()
    server.soon(server.tts.goes_on.clear)
    page.evaluate(SOMEBODY_ELSE)
    server.do(until(server.tts.is_asked.is_set))
    speak, save = page.get_by_test_id("studio-speak"), page.get_by_test_id("studio-save")
    speak.click()
    expect(state).to_contain_text("You are waiting in line")
    expect(state).to_contain_text("Next try in 1 sec")
    server.soon(server.tts.goes_on.set)
    expect(speak).to_have_text("Stop")
    expect(state).to_contain_text("Spoken to the end")
    expect(speak).to_have_text("Speak")
    assert server.tts.asked[-1] == ("Hello there.", "en", "high", 1.0)
    for mark, shown in (
        ("st_waited", " ms"),
        ("st_first", " ms"),
        ("st_whole", " ms"),
        ("st_words", "2"),
        ("st_length", "0.3 sec"),
        ("st_ratio", " ×"),
    ):
        expect(page.get_by_test_id(mark).locator("dd")).to_contain_text(shown)
    assert page.locator("#studio-wave").evaluate(HAS_INK)
    with page.expect_download() as saved:
        save.click()
    assert saved.value.suggested_filename.endswith(".wav")
    with wave.open(str(saved.value.path())) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (24_000, 1, 2)
        assert file.getnframes() == 7_200
        assert max(file.readframes(7_200)) > 0
    wide = page.get_by_test_id("studio").evaluate("(one) => one.scrollWidth - one.clientWidth")
    assert wide == 0


def test_voices_are_filtered_and_tried_and_what_is_wrong_stands_beside_its_field(
    page: Page, server: Server
) -> None:
    text, speak = page.get_by_test_id("studio-text-input"), page.get_by_test_id("studio-speak")
    problem, state = page.locator("#studio-text-problem"), page.get_by_test_id("studio-state")
    speak.click()
    expect(problem).to_have_text("Type a text first.")
    expect(text).to_be_focused()
    text.fill("a" * (MAX_INPUT_CHARS + 1))
    expect(page.get_by_test_id("studio-count")).to_have_text(
        f"{MAX_INPUT_CHARS + 1:,} of {MAX_INPUT_CHARS:,} characters"
    )
    speak.click()
    expect(problem).to_contain_text(f"has {MAX_INPUT_CHARS + 1:,} characters")
    assert server.tts.asked == []
    text.fill("-")
    expect(problem).to_have_count(0)
    page.keyboard.press("Control+Enter")
    expect(problem).to_have_text("Nothing in this text can be spoken.")

    page.get_by_test_id("studio-listed").select_option(label="German")
    expect(page.get_by_test_id("studio-voice")).to_have_count(2)
    voice_of(page, "tone/tief").get_by_role("button").click()
    expect(voice_of(page, "tone/tief").get_by_role("radio")).to_be_checked()
    server.do(until(lambda: (sample_text("de"), "de", "tief", 1.0) in server.tts.asked))

    server.wait_until_silent()
    server.tts.info = TtsInfo("tone", 24_000, {"en": ("low",)})
    text.fill("Hallo.")
    speak.click()
    expect(page.locator("#studio-voice-problem")).to_contain_text("not there any more")
    expect(voice_of(page, "tone/tief")).to_have_count(0)
    server.tts.is_asked.clear()
    server.soon(server.tts.goes_on.clear)
    speak.focus()
    page.keyboard.press("Enter")
    server.do(until(server.tts.is_asked.is_set))
    expect(speak).to_have_text("Stop")
    page.keyboard.press("Enter")
    expect(state).to_have_text("Stopped")
    server.wait_until_silent()  # the voice of the server, too
    expect(page.get_by_test_id("studio-save")).to_have_count(0)
