"""`POST /api/conversation/process`: sends a sentence while there is no WebSocket."""

from collections.abc import Mapping

import msgspec
from aiohttp import ClientError, ClientSession

from core.errors import RemoteProtocolError
from devices.home_assistant.errors import (
    HomeAssistantAccessError,
    HomeAssistantCommandError,
    HomeAssistantUnreachable,
)
from devices.home_assistant.settings import HomeAssistantSettings

MAX_BODY_BYTES = 2**20
"Limit of an answer. An answer has a few kB; an answer that names a thousand entities has 100 kB."


async def post_sentence(
    http: ClientSession, settings: HomeAssistantSettings, wanted: Mapping[str, str]
) -> object:
    """Sends the request and returns the decoded answer.

    Raises HomeAssistantAccessError, HomeAssistantUnreachable, HomeAssistantCommandError and
    RemoteProtocolError.
    """
    try:
        async with http.post(
            settings.conversation_url,
            json=wanted,
            headers=settings.headers,
            ssl=settings.verify_tls,
            allow_redirects=False,  # no other server may get the token
        ) as response:
            status, body = response.status, bytearray()
            async for chunk in response.content.iter_any():
                body += chunk
                if len(body) > MAX_BODY_BYTES:
                    raise RemoteProtocolError("Home Assistant: an answer is too long")
    except (ClientError, OSError) as error:
        raise HomeAssistantUnreachable(str(error) or type(error).__name__) from error
    if status == 200:
        return _decoded(body)
    if status in (401, 403):
        raise HomeAssistantAccessError(_REFUSED[status])
    if status == 400:
        raise HomeAssistantCommandError("invalid_format", body[:300].decode("utf-8", "replace"))
    raise HomeAssistantUnreachable(f"HTTP {status}")


_REFUSED = {
    401: "the token is not valid",
    403: "HTTP 403: it has banned this address (ip_bans.yaml)",
}


def _decoded(body: bytearray) -> object:
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise RemoteProtocolError("Home Assistant: an answer is not JSON") from error
