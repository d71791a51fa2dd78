"""Keeps former states of devices, so that changes can be undone."""

from collections.abc import Sequence

from core.conversation.ids import new_id
from pipeline.tools.home.home import HomeEntity

MAX_CHANGES = 200
"Most changes that are kept, the latest ones: enough for a busy evening of all conversations."


class ChangeJournal:
    """Keeps the former states of changed devices under an id, which the tool's result contains.

    So "undo" means the changes in the history of its conversation, and no session can undo the
    changes of another.
    """

    def __init__(self) -> None:
        self._changes: dict[str, tuple[HomeEntity, ...]] = {}

    def add(self, before: Sequence[HomeEntity]) -> str:
        """Keeps the states of devices before a change, and returns the id of the change."""
        change_id = new_id("change")
        self._changes[change_id] = tuple(before)
        while len(self._changes) > MAX_CHANGES:
            del self._changes[next(iter(self._changes))]
        return change_id

    def before(self, change_ids: Sequence[str]) -> list[HomeEntity] | None:
        """Returns the states before these changes, one for each device.

        change_ids: ids in the order of the changes. Of several changes of a device, the state
        before the first counts. None: an id is unknown.
        """
        found: dict[str, HomeEntity] = {}
        for change_id in change_ids:
            if change_id not in self._changes:
                return None
            for entity in self._changes[change_id]:
                found.setdefault(entity.config.id, entity)
        return list(found.values())
