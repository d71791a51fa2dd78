"""Lists of people, in a real database: each person has one, and it goes with the person."""

import asyncio
from pathlib import Path

import numpy as np
import pytest
from sqlalchemy import func, select

from core.errors import NotFound
from devices.registry.database import open_database
from devices.registry.person_lists import PersonLists
from devices.registry.speakers import EnrolledSpeakers, VoiceSample
from devices.registry.tables import person_list_items
from pipeline.tools.home.home import MAX_LIST_ITEMS
from tests.devices.registry.harness import Moment

pytestmark = pytest.mark.live

VOICE = VoiceSample("ge2e", np.ones(1, np.float32), 3000)


def test_each_person_has_a_list_that_outlives_the_server_and_not_the_person(tmp_path: Path) -> None:
    async def main() -> None:
        url = f"sqlite:///{tmp_path}/devices.db"
        async with open_database(url) as database:
            people, lists = EnrolledSpeakers(database, Moment()), PersonLists(database)
            anna, ben = [(await people.add(name, VOICE)).id for name in ("Anna", "Ben")]
            assert await lists.add_item(anna, " a  present for Ben ") == "a present for Ben"
            assert await lists.add_item(anna, "A present for ben") == "a present for Ben"
            assert await lists.add_item(anna, "stamps") == "stamps"
            assert await lists.add_item(ben, "stamps") == "stamps"
        async with open_database(url) as database:
            people, lists = EnrolledSpeakers(database, Moment()), PersonLists(database)
            assert await lists.open_items(anna) == ["a present for Ben", "stamps"]
            assert await lists.complete_item(anna, "Stamps") == "stamps"
            assert await lists.complete_item(anna, "stamps") is None
            assert await lists.open_items(anna) == ["a present for Ben"]
            assert await lists.open_items(ben) == ["stamps"]
            await people.load()
            await people.delete(anna)
            assert await lists.open_items(anna) == []
            counted = select(func.count()).select_from(person_list_items)
            rows = await database.run(lambda one: one.execute(counted).scalar_one())
            assert rows == 1
            with pytest.raises(NotFound, match="the person was deleted"):
                await lists.add_item(anna, "milk")

    asyncio.run(main())


def test_a_list_has_a_limit(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_database(f"sqlite:///{tmp_path}/devices.db") as database:
            people, lists = EnrolledSpeakers(database, Moment()), PersonLists(database)
            anna = (await people.add("Anna", VOICE)).id
            for number in range(MAX_LIST_ITEMS):
                assert await lists.add_item(anna, f"thing {number}")
            assert await lists.add_item(anna, "one more") is None
            assert await lists.add_item(anna, "thing 7") == "thing 7"
            assert await lists.complete_item(anna, "thing 7")
            assert await lists.add_item(anna, "one more") == "one more"
            assert (await lists.open_items(anna))[-1] == "one more"

    asyncio.run(main())
