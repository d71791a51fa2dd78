"""Asks a connected Home Assistant what the house consists of."""

import asyncio
import logging
from typing import Any

from devices.home_assistant.errors import HomeAssistantCommandError, HomeAssistantUnreachable
from devices.home_assistant.registries import (
    HomeAssistantHouse,
    RegistrySnapshot,
    candidates,
    house,
)
from devices.home_assistant.websocket import HomeAssistantWebSocket

logger = logging.getLogger(__name__)

CHANGES = (
    "area_registry_updated",
    "device_registry_updated",
    "entity_registry_updated",
    "floor_registry_updated",
)
"Events after which things may be called otherwise."

TIMEOUT_S = 30.0
"Of one list: a small computer with thousands of entities takes seconds."

ENTRIES_AT_ONCE = 500
"Registry entries per request: more would hold up Home Assistant's own loop."


async def fetch(link: HomeAssistantWebSocket) -> HomeAssistantHouse:
    """Everything that is exposed, with its names. Raises Away."""
    states = await _ask(link, "get_states")
    exposed = await _ask(link, "homeassistant/expose_entity/list")
    entries: dict[str, Any] = {}
    wanted = candidates(states, exposed)
    for at in range(0, len(wanted), ENTRIES_AT_ONCE):
        some = wanted[at : at + ENTRIES_AT_ONCE]
        told = await _ask(link, "config/entity_registry/get_entries", entity_ids=some)
        entries |= told if isinstance(told, dict) else {}
    told = RegistrySnapshot(
        states=states,
        entries=entries,
        devices=await _ask(link, "config/device_registry/list"),
        areas=await _ask(link, "config/area_registry/list"),
        floors=await _ask(link, "config/floor_registry/list"),
        exposed=exposed,
    )
    # 5 000 states are a tenth of a second of work.
    return await asyncio.to_thread(house, told)


async def subscribe(link: HomeAssistantWebSocket) -> None:
    """Be told of changes, as far as the token's user may be. Raises Away."""
    for kind in CHANGES:
        await _ask(link, "subscribe_events", event_type=kind)


async def _ask(link: HomeAssistantWebSocket, kind: str, **fields: Any) -> Any:
    """The answer; None when it knows no such command, or the token's user may not ask."""
    try:
        async with asyncio.timeout(TIMEOUT_S):
            return await link.call(kind, **fields)
    except HomeAssistantCommandError as error:
        logger.debug("< home assistant: %s: %s", kind, error)
        return None
    except TimeoutError:
        raise HomeAssistantUnreachable(f"no answer to {kind} within {TIMEOUT_S:g} s") from None
