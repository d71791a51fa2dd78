"""Voices of one's own in the settings view of the page: recorded or chosen, heard, saved, deleted.
The server's door and database are the real ones; the engine stands in for a real one."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest
from aiohttp import web as aioweb
from playwright.sync_api import Page, expect

from devices.registry.own_voices import OwnVoiceTable
from media.files.upload_spool import UploadSpools
from pipeline.speech.own_voices import CONSENT, OwnVoices
from server.http.edge import edge
from server.runtime.metrics import PrometheusMetrics
from tests.devices.registry.harness import Moment
from tests.media.files.thread_decoder import ThreadDecoder
from tests.pipeline.cloning import CloningVoice, recording
from tests.web.browser import Stub, serving
from web.openai.speech.own_voices import MAX_BODY_BYTES, OwnVoicesDoor, own_voice_routes

pytestmark = pytest.mark.browser


@dataclass
class Server(Stub):
    """The page's server with an empty form of settings, and voices of one's own."""

    heard: list[str] = field(default_factory=list)
    "Ids of the voices whose samples were played."

    def app(self) -> aioweb.Application:
        app = super().app()
        app.middlewares.append(edge(PrometheusMetrics(), MAX_BODY_BYTES))
        assert self.kept_database is not None
        own = OwnVoices(cast("Any", CloningVoice()), OwnVoiceTable(self.kept_database, Moment()))
        door = OwnVoicesDoor(own, UploadSpools(), ThreadDecoder())
        for route in own_voice_routes(door):
            app.router.add_route(route.method, route.path, route.handler)
        app.router.add_get("/v1/audio/voices/{id:.+}/sample", self.sample)
        app.router.add_get("/v1/settings", self.settings)
        return app

    async def settings(self, _: aioweb.Request) -> aioweb.Response:
        return aioweb.json_response({"file": "", "etag": "", "read_only": "", "fields": []})

    async def sample(self, request: aioweb.Request) -> aioweb.Response:
        self.heard.append(request.match_info["id"])
        return aioweb.Response(body=recording(), content_type="audio/wav")


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    with serving(server):
        yield server


def test_a_voice_is_made_of_a_file_heard_and_deleted(
    settings_page: Page, server: Server, tmp_path: Path
) -> None:
    page = settings_page
    own, note = page.get_by_test_id("own-voices"), page.get_by_test_id("own-note")
    own.locator("summary").click()
    expect(own).to_contain_text("a recording of 3 to 15 s")
    page.get_by_test_id("own-record").click()  # a beep is no voice
    expect(own).to_contain_text("1 s so far")
    page.get_by_test_id("own-record").click()
    expect(page.get_by_test_id("own-name")).to_be_focused()
    page.get_by_test_id("own-name").fill("anna")
    page.get_by_test_id("own-consent").check()
    page.get_by_test_id("own-save").click()
    expect(note).to_contain_text("no voice can be made of this recording")
    page.get_by_test_id("own-again").click()
    file = tmp_path / "anna.wav"
    file.write_bytes(recording())
    page.get_by_test_id("own-file").set_input_files(file)
    page.get_by_test_id("own-listen").click()
    page.get_by_test_id("own-name").fill("an na")
    page.get_by_test_id("own-save").click()
    expect(note).to_contain_text("1 to 32 letters")
    page.get_by_test_id("own-name").fill("anna")
    page.get_by_test_id("own-save").click()
    expect(note).to_have_text("Please agree to the text first.")
    expect(own).to_contain_text(CONSENT)
    page.get_by_test_id("own-consent").check()
    page.get_by_test_id("own-language").select_option("de")
    page.get_by_test_id("own-save").click()
    voice = page.get_by_test_id("own-voice")
    expect(voice).to_have_attribute("data-name", "anna")
    expect(voice).to_contain_text("German")
    page.get_by_test_id("own-hear").click()
    page.get_by_test_id("own-delete").click()
    page.get_by_test_id("own-delete-sure").click()
    expect(voice).to_have_count(0)
    assert server.heard == ["own/anna"]
