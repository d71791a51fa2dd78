"""The former states of devices that commands have changed, so that a change can be taken back."""

from collections.abc import Sequence

from core.ids import new_id
from pipeline.tools.home.home import HomeEntity

MAX_CHANGES = 200
"""Most changes that are kept, the latest ones: those of a busy evening of all conversations."""


class ChangeJournal:
    """Keeps the former states of changed devices under an id, which the tool's result contains.

    So the conversation's history says what "undo" means, and sessions cannot undo each other's
    changes.
    """

    def __init__(self) -> None:
        self._changes: dict[str, tuple[HomeEntity, ...]] = {}

    def add(self, before: Sequence[HomeEntity]) -> str:
        """Keeps the states of devices before a change. Returns the id of the change."""
        change_id = new_id("change")
        self._changes[change_id] = tuple(before)
        while len(self._changes) > MAX_CHANGES:
            del self._changes[next(iter(self._changes))]
        return change_id

    def before(self, change_ids: Sequence[str]) -> list[HomeEntity] | None:
        """Returns the states before these changes, each device once; None if one is not known.

        change_ids: in the order of the changes. The state before the first one counts.
        """
        found: dict[str, HomeEntity] = {}
        for change_id in change_ids:
            if change_id not in self._changes:
                return None
            for entity in self._changes[change_id]:
                found.setdefault(entity.config.id, entity)
        return list(found.values())
