"""`python -m bench.capacity`: short runs against real servers, and wrong arguments."""

import re

import numpy as np
import pytest

from bench.capacity.__main__ import main
from core.audio import PTIME_MS

pytestmark = pytest.mark.live


def rows(out: str) -> list[list[str]]:
    lines = [line for line in out.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


@pytest.mark.real
@pytest.mark.alone
def test_calls_are_compared_with_stock_aiortc(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--calls", "2", "--seconds", "2", "--rounds", "1"]
    assert main(["webrtc", "--systems", "stock,earshot", *options]) == 0
    out = capsys.readouterr().out
    stock, ours = rows(out)
    assert (stock[0], stock[1], stock[3]) == ("stock", "2", "1.00 x")
    assert (ours[0], ours[1]) == ("earshot", "2")
    for row in (stock, ours):
        assert float(row[2].split()[0]) > 0
        assert float(row[4]) > 50, "the server sent almost nothing"
        assert row[-1] == "0"
    assert "extrapolated from 2, not measured: stock" in out


@pytest.mark.real
@pytest.mark.alone
def test_websockets_are_compared_with_an_echo_server(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--sockets", "2", "--seconds", "2", "--rounds", "1"]
    assert main(["websocket", "--systems", "echo,vad", *options]) == 0
    echo, ours = rows(capsys.readouterr().out)
    assert (echo[0], ours[0]) == ("echo", "vad")
    assert float(echo[4]) > 50
    assert float(ours[4]) > 50
    assert (echo[-1], ours[-1]) == ("0", "0")


@pytest.mark.real
@pytest.mark.alone
def test_a_full_server_refuses_new_sessions_and_keeps_the_others(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["limit", "--limit", "3"]) == 0
    out = capsys.readouterr().out
    assert "3 sessions (1 of them calls), then:" in out
    for transport in ("webrtc", "ws"):
        assert re.search(
            rf"- {transport}: the server answered 503: all 3 sessions are in use.*"
            r"; try again in \d+ s",
            out,
        )
    assert "all open sessions continued" in out


@pytest.mark.real
@pytest.mark.alone
def test_sessions_that_end_leave_nothing_behind(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cycles", "--cycles", "40"]) == 0
    before, after = rows(capsys.readouterr().out)
    assert (before[0], after[0]) == ("before", "after")
    assert before[2:] == after[2:], "threads, files or tasks"


def test_the_error_names_wrong_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["webrtc", "--systems", "stock,moon"]) == 1
    assert "--systems moon: there are" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["limit", "--limit", "1"])


def test_all_clients_send_the_same_speech_in_frames() -> None:
    from bench.capacity.client_audio import appends, packets
    from signaling.realtime.protocol.client_events import InputAppend
    from signaling.realtime.protocol.decode import decode

    opus_packets, events = packets(), appends()
    assert len(opus_packets) == len(events) > 10_000 // PTIME_MS
    event = decode(events[0])
    assert isinstance(event, InputAppend)
    assert len(np.frombuffer(event.audio.encode(), np.uint8)) == 1280
