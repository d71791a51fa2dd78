"""HTTP client of one `/v1/audio/speech`: sends a clause and receives its samples."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import msgspec

from core.errors import (
    ConfigError,
    EngineError,
    EngineMissing,
    EngineTimeout,
    EngineUnreachable,
    OverloadedError,
)
from engines.base import Message
from engines.llm.openai.chunks import error_text
from engines.runtime.openai_http.errors import retry_after_s, sanitized_quote

logger = logging.getLogger(__name__)

MAX_ERROR_BYTES = 16 * 1024
KEEPALIVE_S = 60.0
"Idle time after which a connection closes. A new one to a hosted service costs some 100 ms."
RETRIED = (429, 502, 503)
"Statuses that are retried: the server is busy, or starting behind a proxy."
RETRY_WAIT_S = 0.25
MAX_RETRY_WAIT_S = 2.0
"Longest wait before a retry. If the server asks for more, the clause fails: a user is waiting."
RETRY_AFTER_S = 5

HINTS = {
    401: "wants another key (api_key, api_key_file)",
    403: "does not let this key in",
    404: "does not know this model or address (model, base_url)",
    429: "is busy, or the key's quota is used up",
    503: "is not ready",
}

_FILES = {b"RIFF": "a WAV file", b"ID3": "an MP3 file", b"OggS": "an Ogg file", b"fLaC": "FLAC"}
"First bytes of audio that is not raw PCM -> its name."


class SpeechApiClient:
    """A connection pool to one server, opened in the event loop of the first request."""

    def __init__(
        self,
        name: str,
        *,
        base_url: str,
        api_key: str,
        api_key_file: str,
        connect_timeout_s: float,
        first_audio_timeout_s: float,
        audio_timeout_s: float,
    ) -> None:
        """Raises ConfigError for a bad address or key, EngineMissing without an address.

        name: name of the engine in errors.
        """
        self._name = name
        self._url = f"{_checked_url(name, base_url)}/audio/speech"
        self._key = _read_key(api_key, api_key_file)
        self._connect_timeout_s = connect_timeout_s
        self._first_audio_timeout_s, self._audio_timeout_s = first_audio_timeout_s, audio_timeout_s
        self._session: aiohttp.ClientSession | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def stream(self, body: Mapping[str, object]) -> AsyncGenerator[bytes, None]:
        """Streams the bytes of the samples as they come, never empty.

        body: JSON of the request. Closing the generator closes the connection, unless all has come.
        Raises EngineError, OverloadedError.
        """
        response, data = await self._begin(body)
        try:
            while data:
                yield data
                data = await self._next(response)
        finally:
            if response.content.at_eof():
                response.release()
            else:
                response.close()

    async def aclose(self) -> None:
        """Closes idle connections. A later request opens new ones."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _begin(self, body: Mapping[str, object]) -> tuple[aiohttp.ClientResponse, bytes]:
        """Returns the response and its first bytes. A failure before them is retried once."""
        limit_s = self._first_audio_timeout_s
        try:
            async with asyncio.timeout(limit_s):
                try:
                    return await self._ask(body)
                except (EngineUnreachable, TtsHttpError) as exc:
                    wait_s = _wait_s(exc)
                    if wait_s is None:
                        raise
                    logger.info("tts engine %r: %s; trying once more", self._name, exc.detail)
                await asyncio.sleep(wait_s)
                return await self._ask(body)
        except TimeoutError:
            raise self._timeout(f"no audio within {limit_s:g} s") from None
        except TtsHttpError as exc:
            if exc.status in {429, 503}:
                raise OverloadedError(str(exc), retry_after_s=RETRY_AFTER_S) from exc
            raise

    async def _ask(self, body: Mapping[str, object]) -> tuple[aiohttp.ClientResponse, bytes]:
        try:
            response = await self._opened().post(self._url, json=body, allow_redirects=False)
        except TimeoutError:  # aiohttp's own timeout, while connecting
            raise self._timeout(f"no connection to {self._url}") from None
        except (aiohttp.ClientError, OSError) as exc:
            raise self._unreachable(exc) from exc
        try:
            await self._check_status(response, str(body["input"]))
            data = b""
            # `_check_is_pcm` needs 4 bytes.
            while len(data) < 4 and (more := await response.content.readany()):
                data += more
            self._check_is_pcm(response, data)
        except (aiohttp.ClientError, OSError) as exc:
            response.close()
            raise self._unreachable(exc) from exc
        except BaseException:
            response.close()
            raise
        return response, data

    async def _next(self, response: aiohttp.ClientResponse) -> bytes:
        """Returns the next bytes; empty at the end."""
        try:
            async with asyncio.timeout(self._audio_timeout_s):
                return await response.content.readany()
        except TimeoutError:
            why = f"nothing for {self._audio_timeout_s:g} s in the middle of a clause"
            raise self._timeout(why) from None
        except (aiohttp.ClientError, OSError) as exc:
            raise self._unreachable(exc) from exc

    def _check_is_pcm(self, response: aiohttp.ClientResponse, data: bytes) -> None:
        """Raises EngineError for anything but PCM, which would sound as loud noise."""
        sent = next((what for head, what in _FILES.items() if data.startswith(head)), "")
        if response.content_type in {"application/json", "text/html", "text/event-stream"}:
            sent = response.content_type
        if sent:
            raise EngineError("tts", self._name, f"{self._url} sent {sent} where PCM was asked for")

    def _opened(self) -> aiohttp.ClientSession:
        loop = asyncio.get_running_loop()
        if self._session is None or self._session.closed or self._loop is not loop:
            self._loop = loop
            connect_s = self._connect_timeout_s
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEPALIVE_S),
                headers={"Authorization": f"Bearer {self._key}"} if self._key else {},
                timeout=aiohttp.ClientTimeout(
                    total=None, connect=connect_s, sock_connect=connect_s, sock_read=None
                ),
            )
        return self._session

    async def _check_status(self, response: aiohttp.ClientResponse, spoken: str) -> None:
        """Raises TtsHttpError for a status other than 200."""
        if response.status == 200:
            return
        body = b""
        with suppress(aiohttp.ClientError, OSError):
            body = await response.content.read(MAX_ERROR_BYTES)
        try:
            said = error_text(msgspec.json.decode(body))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            said = ""  # probably a proxy's HTML page: the status says enough
        said = said.replace(self._key or "\0", "***")
        said = sanitized_quote(said, [Message("user", spoken)])
        wait_s = retry_after_s(response.headers.get("Retry-After", ""))
        raise TtsHttpError(self._name, response.status, said, wait_s)

    def _unreachable(self, why: Exception) -> EngineUnreachable:
        broke = isinstance(why, aiohttp.ServerDisconnectedError | aiohttp.ClientPayloadError)
        told = "the connection broke" if broke else f"no connection: {type(why).__name__}"
        return EngineUnreachable("tts", self._name, f"{self._url}: {told}")

    def _timeout(self, why: str) -> EngineTimeout:
        return EngineTimeout("tts", self._name, why)


class TtsHttpError(EngineError):
    """Raised for an answer with a status other than 200."""

    def __init__(self, engine: str, status: int, said: str, wait_s: float | None) -> None:
        """Takes the server's message.

        said: the message without key and text. wait_s: its Retry-After in s; None: it has none.
        """
        hint = HINTS.get(status, "refused the request" if status < 500 else "failed")
        because = f"{status}: {said}" if said else str(status)
        super().__init__("tts", engine, f"its server {hint} ({because})")
        self.status, self.wait_s = status, wait_s


def _wait_s(exc: EngineUnreachable | TtsHttpError) -> float | None:
    """Returns the wait before a retry in s; None if the request must not be retried."""
    if isinstance(exc, EngineUnreachable):
        return 0.0
    if exc.status not in RETRIED:
        return None
    wait_s = RETRY_WAIT_S if exc.wait_s is None else exc.wait_s
    return wait_s if wait_s <= MAX_RETRY_WAIT_S else None


def _checked_url(name: str, base_url: str) -> str:
    """Returns the address without a slash at its end.

    Raises ConfigError for a bad address, EngineMissing for none.
    """
    if not base_url:
        raise EngineMissing("tts", name, "no server: set base_url (http://host:port/v1)")
    try:
        parts = urlsplit(base_url)
        is_good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_good = False
    else:
        if parts.username or parts.password:
            raise ConfigError("tts base_url: a key goes into api_key or api_key_file")
    if not is_good:
        raise ConfigError(f"tts base_url: {base_url!r} is not an http:// or https:// address")
    return base_url.rstrip("/")


def _read_key(api_key: str, api_key_file: str) -> str:
    """Returns the API key; empty for none. Raises ConfigError if it cannot be read or sent."""
    if api_key and api_key_file:
        raise ConfigError("tts api_key and api_key_file are both set: set only one of them")
    if api_key_file:
        path = Path(api_key_file).expanduser()
        try:
            api_key = path.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as exc:
            raise ConfigError(f"tts api_key_file {path}: {type(exc).__name__}") from None
    if not (api_key.isascii() and api_key.isprintable()):
        raise ConfigError("tts api_key: only printable ASCII can be sent")
    return api_key
