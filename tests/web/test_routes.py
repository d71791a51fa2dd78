"""Only the files of the page are public."""

from tests.web.reports import REPORT, FakeButtons, FakeHome
from web.routes import PageDoor, routes


def test_only_the_files_are_public() -> None:
    every = routes(PageDoor(FakeHome(), FakeButtons(), lambda: REPORT))
    assert {route.path for route in every if route.is_public} == {"/", "/static/{path:.+}"}
    assert {route.path for route in every if not route.is_public} == {
        "/earshot/home",
        "/earshot/home/events",
        "/earshot/home/entities/{id}",
        "/earshot/home/shopping_list/{id}",
        "/earshot/home/timers/{id}",
        "/earshot/engines",
    }
