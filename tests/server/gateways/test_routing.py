"""Which gateway answers a request."""

import pytest

from core.conversation.ids import gateway_of, mark_ids, new_id, new_secret
from core.errors import OverloadedError
from server.gateways.channel import GatewayRow, Table
from server.gateways.routing import Fleet, RoutedRequest

BITS = "0123456789ab" * 2


def row(number: int, slot: int, state: str = "ready", load: int = 0) -> GatewayRow:
    return GatewayRow(number, slot, state, slot == 0, load)  # type: ignore[arg-type]


def fleet(*gateways: GatewayRow, own: int = 1) -> Fleet:
    found = Fleet(own)
    found.update(Table(gateways, is_started=True))
    return found


TWO = row(1, 0), row(2, 1)


def destination(of: Fleet, path: str = "/", **facts: str) -> int:
    found = of.destination(RoutedRequest(path, **facts))  # type: ignore[arg-type]
    return of.own_number if found is None else found.number


def test_an_id_names_its_gateway() -> None:
    mark_ids(12)
    try:
        ids = [
            new_id("rtc"),
            new_id("whip"),
            new_id("conv"),
            new_id("sess"),
            "ek_" + new_secret(24),
        ]
        assert [gateway_of(name) for name in ids] == [12] * 5
        assert gateway_of(new_id("item")) is None  # a client never names it in a URL
    finally:
        mark_ids(0)
    assert gateway_of(new_id("rtc")) is None
    assert len(new_id("rtc")) == len("rtc_") + 24


@pytest.mark.parametrize("name", ["rtc_0x" + BITS, "rtc_x" + BITS, "2x" + BITS, "rtc_2x12", ""])
def test_other_names_name_none(name: str) -> None:
    assert gateway_of(name) is None


@pytest.mark.parametrize(
    ("path", "facts"),
    [
        (f"/whip/whip_2x{BITS}", {}),
        (f"/whip/whip_2x{BITS}/events", {}),
        (f"/v1/realtime/calls/rtc_2x{BITS}/hangup", {}),
        ("/v1/realtime", {"call_id": f"rtc_2x{BITS}"}),
        (f"/v1/live/sessions/rtc_2x{BITS}/attach", {}),
        (f"/v1/live/sessions/sess_2x{BITS}/attach", {}),
        ("/v1/realtime/calls", {"secret": f"ek_2x{BITS}{BITS}"}),
        ("/v1/realtime", {"conversation_id": f"conv_2x{BITS}"}),
    ],
)
def test_a_request_with_an_id_goes_to_the_gateway_that_made_it(
    path: str, facts: dict[str, str]
) -> None:
    for own in (1, 2):
        found = fleet(*TWO, own=own).destination(RoutedRequest(path, **facts))  # type: ignore[arg-type]
        assert found == (None if own == 2 else TWO[1])


def test_calls_of_a_retiring_gateway_are_reached_and_new_ones_go_elsewhere() -> None:
    gateways = row(1, 0), row(2, 1, "retiring"), row(3, 1)
    assert destination(fleet(*gateways), f"/whip/whip_2x{BITS}") == 2
    assert destination(fleet(*gateways, own=2), "/v1/realtime/calls") in (1, 3)
    assert destination(fleet(*gateways, own=2), "/health") in (1, 3)
    kept = destination(fleet(*gateways), "/v1/realtime", conversation_id=f"conv_2x{BITS}")
    assert kept in (1, 3)


def test_the_id_of_an_ended_gateway_is_answered_here() -> None:
    assert destination(fleet(*TWO), f"/whip/whip_7x{BITS}") == 1


def test_devices_settings_and_other_doors_are_at_home() -> None:
    for path in ("/v1/devices", "/v1/devices/dev_1/notify", "/v1/settings", "/xiaozhi/ota/"):
        assert destination(fleet(*TWO, own=2), path) == 1
    assert destination(fleet(*TWO, own=2), "/v1/devicesx") == 2
    other = RoutedRequest("/signal", is_other_doors=True)
    assert fleet(*TWO, own=2).destination(other) == TWO[0]
    assert destination(fleet(*TWO, own=2), "/v1/audio/transcriptions") == 2


def test_without_a_home_the_caller_is_asked_to_wait() -> None:
    with pytest.raises(OverloadedError, match="starting again") as caught:
        destination(fleet(row(2, 1), own=2), "/v1/devices")
    assert caught.value.code == "gateway_restarting"


def test_a_conversation_stays_with_its_slot() -> None:
    names = [f"kitchen-{number}" for number in range(200)]
    before = [destination(fleet(*TWO), "/v1/realtime", conversation_id=name) for name in names]
    assert 60 < before.count(1) < 140
    seen_by_other = fleet(*TWO, own=2)
    assert before == [
        destination(seen_by_other, f"/v1/conversations/{name}/turns") for name in names
    ]
    # another process in slot 1: only the number changes
    after = [
        destination(fleet(row(1, 0), row(5, 1)), "/v1/realtime", conversation_id=name)
        for name in names
    ]
    assert after == [5 if number == 2 else 1 for number in before]


def test_all_requests_of_a_key_with_a_rate_meet() -> None:
    assert len({destination(fleet(*TWO, own=n), rated_key_id="key_1") for n in (1, 2)}) == 1
