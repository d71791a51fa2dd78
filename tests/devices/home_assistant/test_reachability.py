"""Whether Home Assistant is reachable, as the page shows it."""

import pytest

from pipeline.tools.home import Home, HomeConfig
from server.compose.home_assistant import run_home_assistant
from server.config.sections.home_assistant import HomeAssistantConfig
from tests.devices.home_assistant.fake_server import TOKEN, fake_home
from tests.devices.home_assistant.harness import run, until
from tests.pipeline.fakes import Counts, ManualClock

pytestmark = pytest.mark.live


@pytest.mark.parametrize(("token", "reach"), [(TOKEN, "here"), ("of-somebody-else", "refused")])
def test_the_page_shows_whether_home_assistant_is_reachable(token: str, reach: str) -> None:
    async def main() -> None:
        shown = Home(HomeConfig())
        assert shown.snapshot().reach == "here"
        async with fake_home() as home:
            config = HomeAssistantConfig(url=home.url, token=token)
            async with run_home_assistant(config, shown, ManualClock(), Counts()):
                await until(lambda: shown.snapshot().reach == reach)
                if reach == "here":
                    before = shown.revision
                    await home.stop()
                    await until(lambda: shown.snapshot().reach == "away")
                    assert shown.revision > before

    run(main())
