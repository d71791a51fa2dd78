"""One look at Home Assistant, for `earshot doctor`."""

import asyncio

from aiohttp import ClientError, ClientSession, DummyCookieJar

from core.tasks import single_error
from devices.home_assistant.errors import HomeAssistantUnreachable
from devices.home_assistant.fetch import fetch
from devices.home_assistant.registries import HomeAssistantHouse
from devices.home_assistant.settings import HomeAssistantSettings
from devices.home_assistant.websocket import connect


async def fetch_once(settings: HomeAssistantSettings) -> HomeAssistantHouse:
    """Connect, learn what there is, and leave. Raises EarshotError: Refused, Away, ..."""
    async with ClientSession(cookie_jar=DummyCookieJar()) as http:
        try:
            with single_error():
                async with (
                    connect(http, settings, lambda event: None) as link,
                    asyncio.TaskGroup() as tasks,
                ):
                    reading = tasks.create_task(link.run())
                    found = await fetch(link)
                    reading.cancel()
            return found
        except (ClientError, OSError) as error:
            raise HomeAssistantUnreachable(str(error) or type(error).__name__) from error
