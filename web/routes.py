"""Everything the page needs beside the Realtime door, as one list to mount."""

from dataclasses import dataclass

from core.http.routes import Route
from web.engines import EnginesSource, engine_routes
from web.home import HomeSource, home_routes
from web.page import page_routes


@dataclass(frozen=True, slots=True)
class PageDoor:
    """What the page's routes depend on."""

    home: HomeSource
    engines: EnginesSource


def routes(door: PageDoor) -> tuple[Route, ...]:
    """The page's routes; reads its files, so call it once at start."""
    return (*page_routes(), *home_routes(door.home), *engine_routes(door.engines))
