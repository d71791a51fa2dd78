"""The demo home that skills act on when no Home Assistant is connected."""

from pipeline.tools.home.changes import ChangeJournal
from pipeline.tools.home.config import AreaConfig, EntityConfig, HomeConfig, default_home
from pipeline.tools.home.home import DemoEntity, DemoHome, names_in
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
    "DemoEntity",
    "DemoHome",
    "EntityConfig",
    "EntityState",
    "HomeConfig",
    "HomeState",
    "ShoppingListItem",
    "TimerState",
    "default_home",
    "names_in",
]
