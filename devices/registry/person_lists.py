"""Lists of people: things to buy and to do that belong to one person whose voice is known. They lie
in the database of the devices, and are deleted with the person."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Row, delete, insert, select

from core.conversation.ids import new_id
from core.errors import NotFound
from devices.registry.database import Database
from devices.registry.tables import person_list_items, speakers
from pipeline.tools.home.home import MAX_ITEM_CHARS, MAX_LIST_ITEMS


class PersonLists:
    """A `PersonalLists` in the database. Items that are done are deleted."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add_item(self, person_id: str, text: str) -> str | None:
        """Adds an item to the list of a person, unless it is there, and returns its text. None: the
        list is full. Raises NotFound speaker_not_found for a person who was deleted, StorageError.
        """
        text = " ".join(text.split())[:MAX_ITEM_CHARS]

        def work(connection: Connection) -> str | None:
            found = select(speakers.c.id).where(speakers.c.id == person_id).with_for_update()
            if connection.execute(found).one_or_none() is None:
                raise NotFound("the person was deleted", code="speaker_not_found")
            rows = _rows(connection, person_id)
            for row in rows:
                if _is(row, text):
                    return str(row.text)
            if len(rows) >= MAX_LIST_ITEMS:
                return None
            number = rows[-1].number + 1 if rows else 0
            item = {"id": new_id("item"), "speaker_id": person_id, "text": text, "number": number}
            connection.execute(insert(person_list_items).values(item))
            return text

        return await self._database.run(work)

    async def complete_item(self, person_id: str, text: str) -> str | None:
        """Takes an item off the list of a person, and returns its text. None: it is not on the
        list. Raises StorageError."""
        text = " ".join(text.split())

        def work(connection: Connection) -> str | None:
            for row in _rows(connection, person_id):
                if _is(row, text):
                    is_it = person_list_items.c.id == row.id
                    connection.execute(delete(person_list_items).where(is_it))
                    return str(row.text)
            return None

        return await self._database.run(work)

    async def open_items(self, person_id: str) -> Sequence[str]:
        """Returns the texts on the list of a person, the oldest first. Raises StorageError."""

        def work(connection: Connection) -> Sequence[str]:
            return [str(row.text) for row in _rows(connection, person_id)]

        return await self._database.run(work)


def _rows(connection: Connection, person_id: str) -> Sequence[Row[Any]]:
    of_person = person_list_items.c.speaker_id == person_id
    listed = select(person_list_items).where(of_person).order_by(person_list_items.c.number)
    return connection.execute(listed).all()


def _is(row: Row[Any], text: str) -> bool:
    return str(row.text).casefold() == text.casefold()
