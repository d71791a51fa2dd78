"""The demo home that skills act on when no Home Assistant is connected."""

from pipeline.tools.home.config import AreaConfig, EntityConfig, HomeConfig, default_home
from pipeline.tools.home.home import Entity, Home, names_in
from pipeline.tools.home.state import (
    AreaState,
    EntityState,
    HomeState,
    ListItem,
    TimerState,
)

__all__ = [
    "AreaConfig",
    "AreaState",
    "Entity",
    "EntityConfig",
    "EntityState",
    "Home",
    "HomeConfig",
    "HomeState",
    "ListItem",
    "TimerState",
    "default_home",
    "names_in",
]
