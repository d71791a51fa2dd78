"""Routes of the ESPHome door. A device sends no key: the path itself is the secret."""

from core.http.routes import Route
from devices.esphome.sounds import PATH, Sounds


def routes(sounds: Sounds) -> tuple[Route, ...]:
    return (
        Route(
            "GET",
            f"{PATH}/{{name}}",
            sounds.send,
            "Fetch an answer or an announcement, while it is still being made.",
            "esphome",
            response_content_type="audio/*",
            error_codes=("sound_not_found",),
            is_public=True,
            scope="talk",
        ),
    )
