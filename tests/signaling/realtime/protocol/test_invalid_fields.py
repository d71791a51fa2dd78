"""Every field at any depth of every client event, derived from the types: missing, mistyped, or
extra."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from msgspec import inspect

from signaling.realtime.protocol.decode import DECODER, decode
from signaling.realtime.session.prompt import FileValue, ImageValue
from tests.signaling.realtime.fakes import Client, converse

Json = dict[str, Any]
Path = tuple[str | int, ...]

OPEN = (ImageValue, FileValue)
"Refused by the session, whatever they contain."
SAMPLES: Mapping[type[inspect.Type], Any] = {
    inspect.StrType: "a",
    inspect.IntType: 1,
    inspect.FloatType: 1,
    inspect.BoolType: True,
    inspect.AnyType: {},
    inspect.DictType: {},
}


@dataclass(frozen=True)
class Place:
    """A struct within an event, and the valid event around it."""

    event: Json
    path: Path
    struct: inspect.StructType


def alternatives(node: inspect.Type) -> list[inspect.Type]:
    return [*node.types] if isinstance(node, inspect.UnionType) else [bare(node)]


def bare(node: inspect.Type) -> inspect.Type:
    return bare(node.type) if isinstance(node, inspect.Metadata) else node


def sample(node: inspect.Type) -> Any:
    """Returns the smallest value that is valid for this type."""
    node = bare(alternatives(node)[0])
    match node:
        case inspect.StructType():
            return struct_sample(node)
        case inspect.LiteralType(values=values):
            return values[0]
        case inspect.ListType(item_type=item, min_length=least):
            return [sample(item)] * (least or 0)
        case inspect.IntType(ge=least) | inspect.FloatType(ge=least) if least is not None:
            return least
        case _:
            return SAMPLES[type(node)]


def struct_sample(struct: inspect.StructType) -> Json:
    made = {field.encode_name: sample(field.type) for field in struct.fields if field.required}
    return made if struct.tag_field is None else {struct.tag_field: struct.tag, **made}


def places(struct: inspect.StructType, made: Json, event: Json, path: Path) -> Iterator[Place]:
    """Yields this struct and those below it, each in its own event."""
    yield Place(event, path, struct)
    for field in struct.fields:
        for node in map(bare, alternatives(field.type)):
            if isinstance(node, inspect.ListType):
                for item in map(bare, alternatives(node.item_type)):
                    if isinstance(item, inspect.StructType):
                        yield from below(event, (*path, field.encode_name, 0), item)
            elif isinstance(node, inspect.DictType):
                for value in map(bare, alternatives(node.value_type)):
                    if isinstance(value, inspect.StructType):
                        yield from below(event, (*path, field.encode_name, "key"), value)
            elif isinstance(node, inspect.StructType):
                yield from below(event, (*path, field.encode_name), node)


def below(event: Json, path: Path, struct: inspect.StructType) -> Iterator[Place]:
    made = struct_sample(struct)
    yield from places(struct, made, put(event, path, made), path)


def put(event: Json, path: Path, value: Any) -> Json:
    """Returns a copy of the event with the value at this path."""
    copy: Json = json.loads(json.dumps(event))
    node: Any = copy
    for step, after in pairwise(path):
        fresh: Any = [] if isinstance(after, int) else {}
        node = node.setdefault(step, fresh) if isinstance(node, dict) else node[step]
    if isinstance(node, list):
        node[:] = [value]
    else:
        node[path[-1]] = value
    return copy


def without(event: Json, path: Path, name: str) -> Json:
    copy: Json = json.loads(json.dumps(event))
    node: Any = copy
    for step in path:
        node = node[step]
    del node[name]
    return copy


def mistyped(node: inspect.Type) -> list[Any]:
    """Returns one value of each kind of JSON that this type does not accept."""
    taken: set[type] = set()
    for one in map(bare, alternatives(node)):
        match one:
            case inspect.AnyType():
                return []
            case inspect.StructType() | inspect.DictType():
                taken.add(dict)
            case inspect.ListType():
                taken.add(list)
            case inspect.StrType():
                taken.add(str)
            case inspect.BoolType():
                taken.add(bool)
            case inspect.IntType():
                taken.add(int)
            case inspect.FloatType():
                taken |= {int, float}
            case inspect.NoneType():
                taken.add(type(None))
            case inspect.LiteralType():
                pass  # accepts no other text
            case _:
                raise TypeError(one)
    wrong: list[Any] = [True, -7, 0.5, "\u00e4 wrong word", ["?"], {"?": 1}, None]
    return [value for value in wrong if type(value) not in taken]


def event_places(kind: type) -> Iterator[Place]:
    struct = inspect.type_info(kind)
    assert isinstance(struct, inspect.StructType)
    made = struct_sample(struct)
    return places(struct, made, made, ())


def cases(place: Place) -> Iterator[tuple[Json, set[str]]]:
    """Yields invalid events, each with the codes that are allowed for it."""
    struct, path = place.struct, place.path
    if struct.cls not in OPEN:
        yield put(place.event, (*path, "no_such_field"), 1), {"unknown_parameter"}
    tags = [] if struct.tag_field is None or not path else [struct.tag_field]
    for name in (*tags, *(field.encode_name for field in struct.fields if field.required)):
        yield without(place.event, path, name), {"missing_required_parameter"}
    for name in tags:
        for value, code in ((1, "invalid_type"), ("no_such_type", "invalid_value")):
            yield put(place.event, (*path, name), value), {code}
    for field in struct.fields:
        wrong = [] if field.encode_name == "event_id" else mistyped(field.type)  # see every event
        for value in wrong:
            yield put(place.event, (*path, field.encode_name), value), WRONG


WRONG = {"invalid_type", "invalid_value"}
PLACES = [place for kind in DECODER.kinds.values() for place in event_places(kind)]


def test_every_invalid_field_is_refused_and_the_session_goes_on() -> None:
    bad = [case for place in PLACES for case in cases(place)]
    numbered = [{**event, "event_id": f"c{n}"} for n, (event, _) in enumerate(bad)]
    client = Client()
    told = converse(client, *numbered, {"type": "response.create"})
    codes = {out["error"]["event_id"]: out["error"]["code"] for out in told}
    assert {out["type"] for out in told} == {"error"}
    assert len(told) == len(codes)
    for event, (_, allowed) in zip(numbered, bad, strict=True):
        assert codes.get(event["event_id"]) in allowed, event
    assert [ask[0] for ask in client.session.asked] == ["create_response"]


def test_the_smallest_valid_events_are_accepted() -> None:
    """Otherwise the events above could be refused for another reason."""
    for place in PLACES:
        decode(json.dumps(place.event))


def test_the_sweep_reaches_deep_fields() -> None:
    paths = {place.path for place in PLACES}
    assert ("session", "audio", "input", "turn_detection") in paths
    assert ("session", "tools", 0, "require_approval", "always") in paths
    assert ("session", "prompt", "variables", "key") in paths
    assert ("response", "input", 0, "content", 0) in paths
    assert ("item", "tools", 0) in paths
    assert len(PLACES) > 80
