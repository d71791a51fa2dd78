"""JSON bodies: the error names the field, and the fields that there are."""

from typing import Any

import pytest
from msgspec import UNSET, Struct, UnsetType

from core.errors import RequestError
from core.http.json_body import decode_json_body, decode_json_body_or_empty

pytestmark = pytest.mark.unit


class _Voice(Struct, forbid_unknown_fields=True):
    speed: float = 1.0


class _Order(Struct, forbid_unknown_fields=True):
    text: str
    voice: _Voice | UnsetType = UNSET
    note: Any = None


@pytest.mark.parametrize(
    ("body", "code", "param", "words"),
    [
        (b"{", "invalid_json", None, "not JSON"),
        (b"", "invalid_json", None, "not JSON"),
        (b'{"text":"\xff"}', "invalid_json", None, "not JSON"),
        (b'{"note":' + b"[" * 100_000, "invalid_json", None, "not JSON"),
        (b"[]", "invalid_value", None, "body: Expected"),
        (b"{}", "invalid_value", "text", "there are text, voice, note"),
        (b'{"text":3}', "invalid_value", "text", "Expected `str`, got `int`"),
        (b'{"text":"a","x":1}', "invalid_value", "x", "there are text, voice, note"),
        (b'{"text":"a","voice":{"x":1}}', "invalid_value", "voice.x", "there are speed"),
        (b'{"text":"a","voice":{"speed":"1"}}', "invalid_value", "voice.speed", "Expected"),
    ],
)
def test_a_wrong_body_is_refused_with_the_field_that_is_wrong(
    body: bytes, code: str, param: str | None, words: str
) -> None:
    with pytest.raises(RequestError) as caught:
        decode_json_body(body, _Order)
    assert (caught.value.code, caught.value.param) == (code, param)
    assert words in str(caught.value)


def test_an_error_repeats_only_the_beginning_of_a_long_name() -> None:
    with pytest.raises(RequestError) as caught:
        decode_json_body(b'{"text":"a","' + b"x" * 10_000 + b'":1}', _Order)
    assert len(str(caught.value)) < 500


def test_an_empty_body_may_count_as_an_empty_object() -> None:
    assert decode_json_body_or_empty(b"", _Voice) == _Voice()
