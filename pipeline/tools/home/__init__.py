"""The home that skills control and pages show: the demo home, or a copy of Home Assistant's."""

from pipeline.tools.home.changes import ChangeJournal
from pipeline.tools.home.config import AreaConfig, EntityConfig, HomeConfig, default_home
from pipeline.tools.home.home import Home, HomeEntity, names_in
from pipeline.tools.home.state import (
    AreaState,
    EntityState,
    HomeState,
    ShoppingListItem,
    TimerState,
)

__all__ = [
    "AreaConfig",
    "AreaState",
    "ChangeJournal",
    "EntityConfig",
    "EntityState",
    "Home",
    "HomeConfig",
    "HomeEntity",
    "HomeState",
    "ShoppingListItem",
    "TimerState",
    "default_home",
    "names_in",
]
