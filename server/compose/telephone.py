"""Opens the doors for telephone calls, which share their limits."""

from dataclasses import dataclass

from core.access.limits import PlaceCounter
from core.errors import NotFound, RequestError
from core.http.routes import Route
from devices.registry.speakers import EnrolledSpeakers
from devices.telephone.audiosocket.door import AudioSocketDoor
from devices.telephone.calls import TelephoneCalls
from devices.telephone.twilio.door import TwilioDoor
from devices.telephone.twilio.routes import routes
from pipeline.services import SessionServices
from pipeline.session.sessions import Sessions
from pipeline.shared.settings import InitialSettings, SessionSettings
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
    people: EnrolledSpeakers,
    places: PlaceCounter | None,
) -> TelephoneDoors:
    """Opens the doors. `people`: some may have telephone numbers. `places`: counts the calls of all
    gateways."""

    def can_begin(call_settings: SessionSettings) -> bool:
        try:
            services.engines.check(call_settings)
            services.engines.check_spoken_language(call_settings)
        except (NotFound, RequestError):
            return False
        return True

    clock, metrics = services.clock, services.metrics
    settings = config.telephone.as_settings(server_settings)
    guard = ErrorBoundary(metrics)
    find_person = people.person_with_number
    calls = TelephoneCalls(sessions, clock, metrics, settings, find_person, can_begin, places)
    is_on = bool(settings.twilio_auth_token)
    return TelephoneDoors(
        audiosocket=AudioSocketDoor(calls, metrics, guard),
        routes=routes(TwilioDoor(calls, clock, metrics, guard)) if is_on else (),
    )
