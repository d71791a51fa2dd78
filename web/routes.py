"""Lists the routes that the page needs, except those of the Realtime door."""

from dataclasses import dataclass

from core.http.routes import Route
from pipeline.tools.home import Home
from pipeline.tools.skills import HomeControls
from web.engines import EnginesSource, engine_routes
from web.home import home_routes
from web.page import page_routes


@dataclass(frozen=True, slots=True)
class PageDoor:
    """Sources of the data that the page's routes show, and what its buttons act on."""

    home: Home
    buttons: HomeControls
    engines: EnginesSource


def routes(door: PageDoor) -> tuple[Route, ...]:
    """Returns the page's routes. Reads the page's files: call it once, at the start."""
    return (
        *page_routes(),
        *home_routes(door.home, door.buttons),
        *engine_routes(door.engines),
    )
