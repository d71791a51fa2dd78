"""What the server learns about the door: routes, types, error codes."""

from typing import cast

import msgspec

from core.http import Route
from signaling.realtime.door import RealtimeDoor
from signaling.routes import routes


class _AnyDoor:
    """Every handler; none is called."""

    def __getattr__(self, name: str) -> object:
        return lambda request: None


def door_routes() -> tuple[Route, ...]:
    return routes(cast(RealtimeDoor, _AnyDoor()))


def test_paths_and_methods_are_those_of_the_api() -> None:
    assert [(route.method, route.path) for route in door_routes()] == [
        ("GET", "/v1/realtime"),
        ("POST", "/v1/realtime/calls"),
        ("POST", "/v1/realtime"),
        ("POST", "/v1/realtime/calls/{call_id}"),
        ("POST", "/v1/realtime/calls/{call_id}/hangup"),
    ]
    assert not any(route.is_public for route in door_routes())


def test_every_body_has_a_schema() -> None:
    types = [route.request for route in door_routes() if route.request is not None]
    _, components = msgspec.json.schema_components(types)
    assert {"CallForm", "RealtimeSession", "TranscriptionSession"} <= set(components)


def test_every_handler_exists() -> None:
    handlers = [route.handler for route in routes(RealtimeDoor.__new__(RealtimeDoor))]
    assert all(callable(handler) for handler in handlers)
