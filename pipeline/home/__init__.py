"""The demo home that skills act on when no Home Assistant is connected."""

from pipeline.home.config import AreaConfig, EntityConfig, HomeConfig, default_home
from pipeline.home.home import Entity, Home, names_in
from pipeline.home.state import (
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
