"""A look at the database from outside of a server; nothing is made or brought up to date."""

from pathlib import Path

from sqlalchemy import func, inspect, select
from sqlalchemy.exc import SQLAlchemyError

from core.errors import StorageError
from devices.registry.database import engine_of
from devices.registry.tables import devices


def count_devices(url: str) -> int | None:
    """How many are known; None: there are no tables yet. Raises ConfigError, StorageFailed."""
    engine = engine_of(url)
    file = engine.url.database if engine.url.get_backend_name() == "sqlite" else None
    if file is not None and not Path(file).exists():
        return None
    try:
        with engine.connect() as connection:
            if not inspect(connection).has_table(devices.name):
                return None
            return connection.execute(select(func.count()).select_from(devices)).scalar_one()
    except (SQLAlchemyError, OSError) as error:
        cause = getattr(error, "orig", None) or error
        raise StorageError(str(cause).partition("\n")[0]) from error
    finally:
        engine.dispose()
