"""Listening sockets: every address of a host, and one error line for a taken port."""

import resource
import socket

import pytest

from core.errors import ConfigError
from server.config import ServerConfig
from server.net.listeners import AddressInUse, bind, is_local_only, raise_file_limit, urls

pytestmark = pytest.mark.live


def test_a_free_port_is_shared_by_all_addresses_of_a_name() -> None:
    sockets = bind("localhost", 0)
    try:
        assert len({opened.getsockname()[1] for opened in sockets}) == 1
        assert is_local_only(sockets)
        port = sockets[0].getsockname()[1]
        assert urls("localhost", sockets, is_tls=True) == [f"https://localhost:{port}"]
    finally:
        for opened in sockets:
            opened.close()


def test_binding_to_every_address_is_not_local() -> None:
    sockets = bind("0.0.0.0", 0)
    try:
        assert not is_local_only(sockets)
        found = urls("0.0.0.0", sockets, is_tls=False)
        assert found[0].startswith("http://127.0.0.1:")
        assert not [url for url in found if "[" in url]  # nobody listens on IPv6
    finally:
        for opened in sockets:
            opened.close()


def test_a_taken_port_is_one_error_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(AddressInUse) as caught:
            bind("127.0.0.1", port)
    assert str(caught.value) == (
        f"127.0.0.1:{port} is in use by another program; choose another with --port"
    )


@pytest.mark.parametrize("host", ["192.0.2.1", "no such host", "x" * 300])
def test_an_address_of_another_machine_names_the_setting(host: str) -> None:
    with pytest.raises(ConfigError, match=r"^config\.server\.host: "):
        bind(host, 0)


@pytest.mark.parametrize(
    ("soft", "hard", "is_refused", "files"),
    [(512, 4096, False, 4096), (512, 4096, True, 512), (4096, 4096, False, 4096)],
)
def test_the_file_limit_is_raised_to_what_the_system_allows(
    soft: int, hard: int, is_refused: bool, files: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    wished: list[tuple[int, int]] = []

    def wish(_: int, limits: tuple[int, int]) -> None:
        wished.append(limits)
        if is_refused:
            raise ValueError("not allowed")

    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", wish)
    assert raise_file_limit() == files
    assert wished == ([(hard, hard)] if soft != hard else [])


def test_a_trusted_proxy_that_is_not_an_address_is_named() -> None:
    with pytest.raises(ConfigError, match=r"^server\.trusted_proxies: .*nginx"):
        ServerConfig(trusted_proxies=("nginx",))
