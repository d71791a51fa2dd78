"""HTTP of the clients: one session's settings, and what a failure is called."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus

import msgspec
from aiohttp import (
    ClientConnectorCertificateError,
    ClientConnectorError,
    ClientError,
    ClientResponse,
    ClientSession,
    ClientTimeout,
)

from bench.client.address import Address
from bench.client.realtime import CONNECT_TIMEOUT_S, CannotConnect, message_of


def http_session(address: Address) -> ClientSession:
    timeout = ClientTimeout(total=None, connect=CONNECT_TIMEOUT_S, sock_read=CONNECT_TIMEOUT_S)
    return ClientSession(headers=address.headers, timeout=timeout)


@contextmanager
def reaching(address: Address) -> Iterator[None]:
    """Raises CannotConnect for what goes wrong on the way."""
    try:
        yield
    except ClientConnectorCertificateError as error:
        why = f"{address.url}: its certificate is not trusted; --insecure takes it as it is"
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
    """Why the server said no, in its own words."""
    body = await response.read()
    try:
        answered = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        answered = None
    why = message_of(answered) if isinstance(answered, dict) else response.reason
    hint = ""
    if response.status == HTTPStatus.UNAUTHORIZED:
        hint = "; give the key with --key or EARSHOT_KEY"
    elif retry_after := response.headers.get("Retry-After"):
        hint = f"; try again in {retry_after} s"
    return CannotConnect(f"the server answered {response.status}: {why}{hint}")
