"""Controls of the home on a page: switches of devices, the shopping list, timers."""

from collections.abc import Awaitable, Callable

from core.errors import Conflict, NotFound
from pipeline.tools.home import Home
from pipeline.tools.home.state import OnOff
from pipeline.tools.skills.timers import Timers

CLICKABLE = ("light", "switch", "fan")
"""Kinds of device that a click can switch. A lock or a garage door would need a confirmation, and a
heater has more than two states."""

Switch = Callable[[str, OnOff], Awaitable[None]]
"Function that switches a device, by its id, in the home that Home Assistant controls."


class HomeControls:
    """Controls devices, items of the shopping list and timers, by their ids.

    switch: switches devices that the home only mirrors; None: the home is the demo home.
    """

    def __init__(self, home: Home, timers: Timers, switch: Switch | None = None) -> None:
        self._home, self._timers, self._switch = home, timers, switch

    async def switch(self, entity_id: str, state: OnOff) -> None:
        """Switches a device.

        Raises NotFound, Conflict for a kind that is not in CLICKABLE, and the errors of `switch`.
        """
        try:
            kind = self._home.entity(entity_id).config.kind
        except KeyError:
            raise NotFound(f"the home has no device {entity_id[:80]!r}") from None
        if kind not in CLICKABLE:
            raise Conflict(
                f"a {kind} is not switched here; {', '.join(CLICKABLE)} are", code="not_switchable"
            )
        if self._switch is not None:
            await self._switch(entity_id, state)
        else:
            self._home.update(entity_id, state)

    def tick(self, item_id: str, *, is_done: bool) -> None:
        """Ticks an item off the shopping list, or puts it on the list again. Raises NotFound."""
        if self._home.tick(item_id, is_done=is_done) is None:
            raise NotFound(f"the shopping list has no item {item_id[:80]!r}")

    def cancel_timer(self, timer_id: str) -> None:
        """Cancels a timer of any conversation. Raises NotFound."""
        timer = self._timers.get(timer_id)
        if timer is None:
            raise NotFound(f"there is no timer {timer_id[:80]!r}")
        self._timers.cancel(timer)
