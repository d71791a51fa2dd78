"""A language model is told in which room it is spoken to: tools of others cannot know it."""

from core.ports import Place


def with_room(instructions: str, place: Place) -> str:
    """The instructions, and the room, if it is known. Last, so that what is the same for every room
    stays a common beginning, which servers of models keep."""
    if not place.area:
        return instructions
    room = (
        f"The user speaks in this area of the house: {place.area}. "
        "Commands that name no other area mean this one."
    )
    return f"{instructions}\n\n{room}" if instructions else room
