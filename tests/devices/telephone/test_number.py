"""Telephone numbers in the form of E.164, and inside the UUIDs of AudioSocket."""

from uuid import UUID

import pytest

from core.errors import RequestError
from devices.telephone.number import WITHHELD, caller_uuid, number_in, telephone_number

PREFIX = UUID("40325ec2-5efd-4bd3-8000-000000000000")


@pytest.mark.parametrize(
    "text",
    ["+4930123456", "+49 30 123456", " +49 (0)30/12 34-56", "0049.30.123456", "+49 (30) 123456"],
)
def test_every_way_to_write_a_number_is_the_same_number(text: str) -> None:
    assert telephone_number(text) == "+4930123456"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "030 123456",
        "+0301234567",
        "+123456",
        "+1234567890123456",
        "+49x30123456",
        "+٤٩٣٠١٢٣٤٥٦",
    ],
)
def test_what_has_no_country_or_no_such_length_is_no_number(text: str) -> None:
    with pytest.raises(RequestError, match="no telephone number with its country"):
        telephone_number(text)


def test_a_withheld_number_belongs_to_nobody() -> None:
    assert "+266696687" in WITHHELD  # "ANONYMOUS" on the keys of a telephone
    for number in WITHHELD:
        with pytest.raises(RequestError, match="withhold"):
            telephone_number(number)


@pytest.mark.parametrize("number", ["", "201", "+4930123456", "+123456789012345"])
def test_a_uuid_has_the_number_of_the_caller(number: str) -> None:
    assert number_in(PREFIX, caller_uuid(PREFIX, number)) == number


@pytest.mark.parametrize(
    "uuid",
    ["40325ec2-5efd-4bd3-9000-493012345678", "40325ec2-5efd-4bd3-8000-49301234567a"],
)
def test_a_uuid_with_another_beginning_or_a_letter_has_no_number(uuid: str) -> None:
    assert number_in(PREFIX, UUID(uuid)) is None
