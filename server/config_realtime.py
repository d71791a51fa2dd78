"""Settings of the Realtime door, `[realtime]`, and the prompts that its clients may name."""

from typing import Annotated

from msgspec import Meta, Struct, field

from core.errors import ConfigError
from pipeline.prompts import MAX_CHARS, StoredPrompt

PromptId = Annotated[str, Meta(pattern="^[A-Za-z0-9_.-]{1,64}$")]
Version = Annotated[str, Meta(min_length=1, max_length=64)]
Text = Annotated[str, Meta(min_length=1, max_length=MAX_CHARS)]


class PromptConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """One stored prompt. `{{name}}` in a text is a place for a value of the client."""

    text: Text
    version: Version = "1"
    "Of `text`."
    former: dict[Version, Text] = field(default_factory=dict)
    "Version -> its text, for clients that name an older one."

    def __post_init__(self) -> None:
        if self.version in self.former:
            raise ConfigError(f"prompts: version {self.version!r} is in former as well")

    def as_stored(self) -> StoredPrompt:
        return StoredPrompt(self.text, self.version, self.former)
