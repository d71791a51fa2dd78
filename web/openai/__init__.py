"""The audio part of OpenAI's REST API: transcriptions, translations, speech and models."""
