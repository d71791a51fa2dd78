"""Texts that clients ask to be spoken: plain text, or an SSML document. Pure.

Every door that takes such a text makes a `RequestedText` of it. An answer of a language model never
becomes one, so that nothing it repeats from a web page can change the voice.
"""

from collections.abc import Callable
from dataclasses import dataclass

from core.errors import RequestError
from pipeline.speech.ssml import SpeechManner, SsmlText, is_ssml, read_ssml
from pipeline.speech.synthesis import Pause, SpeechPlan

PlanOfManner = Callable[[SpeechManner], SpeechPlan]
"Returns how a part of a document is spoken. Raises RequestError voice_not_found."


@dataclass(frozen=True, slots=True)
class RequestedText:
    """A text that a client sent.

    Example:
        text = RequestedText.of('<speak>Wait.<break time="1s"/>Now.</speak>')
        text.plain_text    # "Wait. Now."
    """

    written: str
    "The text as the client sent it."
    plain_text: str
    "The words without marks: for detection of the language."
    language: str | None
    "Language that the document names (ISO 639-1). None: it names none, or the text is plain."
    is_ssml: bool

    @classmethod
    def of(cls, text: str, param: str | None = None) -> "RequestedText":
        """Returns the text; one that begins with `<speak>` is SSML.

        param: field of the request that has the text. Raises RequestError invalid_ssml.
        """
        if not is_ssml(text):
            return cls(text, text, None, is_ssml=False)
        try:
            document = read_ssml(text)
        except RequestError as error:
            error.param = param
            raise
        return cls(text, document.plain_text, document.language, is_ssml=True)

    def planned_parts(
        self, language: str, plan_of: PlanOfManner
    ) -> list[tuple[str, SpeechPlan] | Pause]:
        """Returns the parts of a document with the plans that they are spoken by.

        language: that of the text where the document names none. Raises RequestError
        voice_not_found, unsupported_language.
        """
        plans: dict[SpeechManner, SpeechPlan] = {}
        parts: list[tuple[str, SpeechPlan] | Pause] = []
        for part in read_ssml(self.written, language).parts:
            if isinstance(part, SsmlText):
                if part.manner not in plans:
                    plans[part.manner] = plan_of(part.manner)
                parts.append((part.text, plans[part.manner]))
            else:
                parts.append(part)
        return parts
