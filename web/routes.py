"""Lists the routes that the page needs, except those of the Realtime door."""

from dataclasses import dataclass

from core.http.routes import Route
from pipeline.tools.home import DemoHome
from web.engines import EnginesSource, engine_routes
from web.home import home_routes
from web.page import page_routes


@dataclass(frozen=True, slots=True)
class PageDoor:
    """Sources of the data that the page's routes show."""

    home: DemoHome
    engines: EnginesSource


def routes(door: PageDoor) -> tuple[Route, ...]:
    """Returns the page's routes. Reads the page's files: call it once, at the start."""
    return (*page_routes(), *home_routes(door.home), *engine_routes(door.engines))
