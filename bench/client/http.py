"""Addresses and keys of servers, and HTTP errors, for all clients."""

import os
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from urllib.parse import parse_qs, urlencode, urlsplit, urlunsplit

import msgspec
from aiohttp import (
    ClientConnectorCertificateError,
    ClientConnectorError,
    ClientError,
    ClientResponse,
    ClientSession,
    ClientTimeout,
)

from bench.client.realtime import CONNECT_TIMEOUT_S, CannotConnect, error_message
from core.errors import RequestError

DEFAULT_URL = "http://127.0.0.1:8080"

KEY_VARIABLES = ("EARSHOT_KEY", "EARSHOT_API_KEY")
"""Environment variables with the key. The second is the server's own setting, so that one variable
serves both on the server's machine."""

_SCHEMES: Mapping[str, str] = {"http": "http", "https": "https", "ws": "http", "wss": "https"}


@dataclass(frozen=True, slots=True)
class Address:
    """A server's base URL without a trailing slash, and its key."""

    url: str = DEFAULT_URL
    key: str | None = field(default=None, repr=False)
    is_insecure: bool = False
    "True: accept any certificate, such as a server's self-signed one."

    def realtime(self, path: str = "", **query: str) -> str:
        """Returns the URL of /v1/realtime or of a path below it."""
        tail = f"?{urlencode(query)}" if query else ""
        return f"{self.url}/v1/realtime{path}{tail}"

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.key}"} if self.key else {}

    def ssl(self) -> ssl.SSLContext | bool:
        """Returns aiohttp's argument `ssl`."""
        return not self.is_insecure


def parse_address(url: str, key: str | None = None, *, is_insecure: bool = False) -> Address:
    """Parses the address of a server, such as `localhost:8080` or `https://host/v1`.

    It may contain a key, as the server prints it: `https://host:8443/#key=...`. `key` overrides it.
    Raises RequestError for text that is no address.
    """
    wrong = RequestError(f"{url!r} is no address; one looks like {DEFAULT_URL}", code="invalid_url")
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        scheme = _SCHEMES[parts.scheme.lower()]
        if not parts.hostname or parts.port == 0:
            raise wrong
    except (KeyError, ValueError):
        raise wrong from None
    key = key or parse_qs(parts.fragment).get("key", [None])[0]
    path = parts.path.rstrip("/").removesuffix("/v1")
    return Address(urlunsplit((scheme, parts.netloc, path, "", "")), key, is_insecure)


def http_session(address: Address) -> ClientSession:
    """Returns an HTTP session that sends the key and limits the time to connect and to read."""
    timeout = ClientTimeout(total=None, connect=CONNECT_TIMEOUT_S, sock_read=CONNECT_TIMEOUT_S)
    return ClientSession(headers=address.headers, timeout=timeout)


@contextmanager
def connect_errors(address: Address) -> Iterator[None]:
    """Raises CannotConnect for network errors of the body."""
    try:
        yield
    except ClientConnectorCertificateError as error:
        why = f"{address.url}: its certificate is not trusted; with --insecure it is accepted"
        raise CannotConnect(why) from error
    except ClientConnectorError as error:
        errno = error.os_error.errno
        why = os.strerror(errno) if errno and errno > 0 else str(error.os_error.strerror)
        raise CannotConnect(f"{address.url} cannot be reached: {why}") from error
    except TimeoutError as error:
        why = f"{address.url} does not answer within {CONNECT_TIMEOUT_S} s"
        raise CannotConnect(why) from error
    except ClientError as error:
        raise CannotConnect(f"{address.url}: {str(error) or type(error).__name__}") from error


async def refusal(response: ClientResponse) -> CannotConnect:
    """Returns an error with the server's reason for a refusal, and a hint what to do."""
    body = await response.read()
    try:
        answered = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        answered = None
    why = error_message(answered) if isinstance(answered, dict) else response.reason
    hint = ""
    if response.status == HTTPStatus.UNAUTHORIZED:
        hint = "; give the key with --key or EARSHOT_KEY"
    elif retry_after := response.headers.get("Retry-After"):
        hint = f"; try again in {retry_after} s"
    return CannotConnect(f"the server answered {response.status}: {why}{hint}")
