"""`DeviceSettingsStore` in the database of the devices."""

from sqlalchemy import Connection, delete, insert, select

from devices.registry import queries
from devices.registry.database import Database
from devices.registry.tables import settings


class DatabaseSettingsStore:
    """Implements `DeviceSettingsStore`; see there."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def read(self, key: str, device_id: str = "") -> object:
        where = (settings.c.owner == device_id) & (settings.c.key == key)

        def work(connection: Connection) -> object:
            return connection.execute(select(settings.c.value).where(where)).scalar_one_or_none()

        return await self._database.run(work)

    async def write(self, key: str, value: object, device_id: str = "") -> None:
        where = (settings.c.owner == device_id) & (settings.c.key == key)

        def work(connection: Connection) -> None:
            if device_id:
                queries.by_id(connection, device_id, for_update=True)
            connection.execute(delete(settings).where(where))
            if value is not None:
                row = {"owner": device_id, "key": key, "value": value}
                connection.execute(insert(settings).values(row))

        await self._database.run(work)
