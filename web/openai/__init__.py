"""The audio part of OpenAI's REST API: transcriptions, translations, models."""
