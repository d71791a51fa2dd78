"""Calls through a real coturn, between two networks that pass no UDP to each other."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import require
from tests.network.coturn import PORT, SECRET, TLS_PORT, Coturn, coturn
from tests.network.namespaces import (
    ROUTER,
    SERVER,
    Networks,
    block_udp,
    dropped_packets,
    inside,
    leave_only,
    missing,
    networks,
    unplug,
)
from tests.shared import ROOT

pytestmark = [pytest.mark.real, pytest.mark.alone]

KEY = "right-key-0123456789"
URLS = [f"turn:{ROUTER}:{PORT}?transport=udp", f"turn:{ROUTER}:{PORT}?transport=tcp"]
TLS_URLS = [f"turns:{ROUTER}:{TLS_PORT}?transport=tcp"]
TIMEOUT_S = 60


@pytest.fixture
def made() -> Iterator[Networks]:
    lacks = missing()
    require(not lacks, lacks)
    with networks() as made:
        yield made


@pytest.fixture
def turn(made: Networks, tmp_path: Path) -> Iterator[Coturn]:
    with coturn(made, tmp_path) as turn:
        yield turn


class Station:
    """The server process."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process
        self.sockets = self.next()["sockets"]

    def next(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        said: dict[str, Any] = json.loads(line) if line else {}
        assert said, "the station ended"
        return said


def start(
    namespace: str, module: str, wishes: dict[str, Any], trusted: Path | None
) -> "subprocess.Popen[str]":
    """`trusted`: a certificate that OpenSSL takes beside its own."""
    command = inside(namespace, sys.executable, "-m", f"tests.network.{module}", json.dumps(wishes))
    trust = {} if trusted is None else {"SSL_CERT_FILE": str(trusted)}
    environment = {**os.environ, **trust}
    return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)


@contextmanager
def station(made: Networks, *, trusted: Path | None = None, **wishes: Any) -> Iterator[Station]:
    given = {"host": SERVER, "key": KEY, "turn": URLS, "secret": SECRET, "relays": False}
    process = start(made.server, "station", {**given, "patience_s": 10, **wishes}, trusted)
    try:
        yield Station(process)
    finally:
        process.kill()
        process.wait(TIMEOUT_S)


def caller(
    made: Networks, *, trusted: Path | None = None, **wishes: Any
) -> "subprocess.Popen[str]":
    given = {"url": f"http://{SERVER}:8080", "key": KEY, "transport": "udp", "patience_s": 15}
    return start(made.caller, "caller", {**given, "does": "call", **wishes}, trusted)


def outcome_of(made: Networks, *, trusted: Path | None = None, **wishes: Any) -> dict[str, Any]:
    """Returns the outcome that a caller printed."""
    process = caller(made, trusted=trusted, **wishes)
    try:
        out, _ = process.communicate(timeout=TIMEOUT_S)
    finally:
        process.kill()
    assert process.returncode == 0
    result: dict[str, Any] = json.loads(out)
    return result


def test_audio_and_texts_go_both_ways_through_the_relay(made: Networks, turn: Coturn) -> None:
    with station(made) as server:
        said = outcome_of(made)
        assert said["connected"]
        assert said["text"] == "heard hello"
        assert said["pair"][0] == "relay"
        ended = server.next()
        assert ended["ended"] == "remote_closed"
        assert ended["sockets"] == server.sockets
    assert dropped_packets(made) > 0  # the direct way was tried, and is none
    (user,) = turn.users()
    expires_s, _, name = user.partition(":")
    assert expires_s.isdecimal()
    assert name.startswith("ice_")


def test_both_sides_use_tcp_if_udp_to_the_relay_is_blocked(made: Networks, turn: Coturn) -> None:
    """The server is configured with both transports, and shows its address to nobody."""
    block_udp(made)
    with station(made, relays=True) as server:
        said = outcome_of(made, transport="tcp")
        assert (said["text"], said["pair"]) == ("heard hello", ["relay", "relay"])
        ended = server.next()
        assert (ended["ended"], ended["sockets"]) == ("remote_closed", server.sockets)
    assert len(turn.users()) == 2


def test_both_sides_use_tls_if_nothing_else_is_allowed(made: Networks, turn: Coturn) -> None:
    leave_only(made, TLS_PORT)
    with station(made, trusted=turn.certificate, relays=True, turn=TLS_URLS) as server:
        said = outcome_of(made, trusted=turn.certificate, transport="tcp")
        assert (said["text"], said["pair"]) == ("heard hello", ["relay", "relay"])
        ended = server.next()
        assert (ended["ended"], ended["sockets"]) == ("remote_closed", server.sockets)
    assert len(turn.users()) == 2


def test_a_relay_with_an_unknown_certificate_gets_no_credentials(
    made: Networks, turn: Coturn
) -> None:
    """A server that may use nothing else offers no address then."""
    with station(made, relays=True, turn=TLS_URLS):
        said = outcome_of(made, trusted=turn.certificate, transport="tcp")
        assert said == {"connected": False, "code": "no_ice_candidates"}
    assert len(turn.users()) == 1  # the caller's, who knows the certificate


def test_whip_publishes_through_the_relay(made: Networks, turn: Coturn) -> None:
    with station(made):
        assert outcome_of(made, does="whip") == {"connected": True, "text": "one"}
    assert any(":whip_" in user for user in turn.users())


def test_a_wrong_credential_relays_nothing(made: Networks, turn: Coturn) -> None:
    with station(made, patience_s=3) as server:
        assert outcome_of(made, credential="wrong", patience_s=5) == {"connected": False}
        ended = server.next()
        assert ended["ended"] == "connect_timeout"
        assert ended["sockets"] == server.sockets
    assert turn.users() == set()


def test_a_call_whose_network_is_lost_is_ended(made: Networks, turn: Coturn) -> None:
    with station(made) as server:
        process = caller(made, stays=True)
        try:
            assert process.stdout is not None
            assert json.loads(process.stdout.readline())["connected"]
            unplug(made)
            ended = server.next()
            assert ended["ended"] == "connection_lost"
            assert ended["sockets"] == server.sockets
        finally:
            process.kill()
            process.wait(TIMEOUT_S)


def test_a_realtime_call_whose_network_is_lost_is_ended(made: Networks, turn: Coturn) -> None:
    with station(made) as server:
        process = caller(made, does="realtime", stays=True)
        try:
            assert process.stdout is not None
            said = json.loads(process.stdout.readline())
            assert (said["connected"], said["pair"][0]) == (True, "relay")
            unplug(made)
            gone = server.next()
            assert gone["name"].startswith("rtc_")
            assert (gone["sessions"], gone["errors"]) == (0, ["connection_lost"])
            assert gone["sockets"] == server.sockets
        finally:
            process.kill()
            process.wait(TIMEOUT_S)
