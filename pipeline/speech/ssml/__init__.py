"""SSML: texts with marks of how they are spoken (W3C, Speech Synthesis Markup Language 1.1). Pure.

Only a text that a client sends is read as SSML, never an answer of a language model.
"""

from pipeline.speech.ssml.document import SsmlDocument, SsmlText, is_ssml
from pipeline.speech.ssml.manner import SpeechManner
from pipeline.speech.ssml.reader import read_ssml

__all__ = ["SpeechManner", "SsmlDocument", "SsmlText", "is_ssml", "read_ssml"]
