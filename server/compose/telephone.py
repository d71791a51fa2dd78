"""Opens the doors for telephone calls, which share their limits."""

from dataclasses import dataclass

from core.access.limits import PlaceCounter
from core.http.routes import Route
from devices.telephone.audiosocket.door import AudioSocketDoor
from devices.telephone.calls import TelephoneCalls
from devices.telephone.twilio.door import TwilioDoor
from devices.telephone.twilio.routes import routes
from pipeline.services import SessionServices
from pipeline.session.sessions import Sessions
from pipeline.shared.settings import InitialSettings
from server.config import Config
from server.http.edge import ErrorBoundary


@dataclass(frozen=True, slots=True)
class TelephoneDoors:
    """The doors for telephone calls."""

    audiosocket: AudioSocketDoor
    "Door for Asterisk's calls, on a listener of its own."
    routes: tuple[Route, ...]
    "Routes for Twilio's calls; empty without its auth token."


def open_telephone_doors(
    config: Config,
    sessions: Sessions,
    services: SessionServices,
    server_settings: InitialSettings,
    places: PlaceCounter | None,
) -> TelephoneDoors:
    """Opens the doors. `places`: counts the calls of all gateways."""
    clock, metrics = services.clock, services.metrics
    settings = config.telephone.as_settings(server_settings)
    calls = TelephoneCalls(sessions, clock, metrics, settings, places)
    guard = ErrorBoundary(metrics)
    is_on = bool(settings.twilio_auth_token)
    return TelephoneDoors(
        audiosocket=AudioSocketDoor(calls, metrics, guard),
        routes=routes(TwilioDoor(calls, clock, metrics, guard)) if is_on else (),
    )
