"""Places, sessions and names of callers, for all telephone doors."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from core.access.limits import CapacityLimit, PlaceCounter
from core.ports import Clock, DeviceLocation, Metrics
from devices.fleet.directory import CallingPerson
from devices.telephone.call import TelephoneCall, TelephoneLine
from devices.telephone.number import WITHHELD
from devices.telephone.settings import TelephoneSettings
from pipeline.session.sessions import Sessions
from pipeline.shared.settings import SessionSettings

logger = logging.getLogger(__name__)

RETRY_AFTER_S = 5

MAX_NUMBER_CHARS = 20
"Longest number of a caller in the prompt. The longest telephone number has 15 digits."


def no_person(number: str) -> CallingPerson | None:
    """Knows nobody: every caller is a guest."""
    return None


class TelephoneCalls:
    """Serves the calls of all telephone doors, each in a session and a conversation of its own: two
    callers never share one."""

    def __init__(
        self,
        sessions: Sessions,
        clock: Clock,
        metrics: Metrics,
        settings: TelephoneSettings,
        person_with_number: Callable[[str], CallingPerson | None] = no_person,
        can_begin: Callable[[SessionSettings], bool] = lambda settings: True,
        places: PlaceCounter | None = None,
    ) -> None:
        """`person_with_number`: returns the person of the house with a telephone number, + and
        digits. `can_begin`: returns whether a session may begin with settings. `places`: counts the
        calls of all gateways; None: this process is the only one."""
        self.settings = settings
        self._person_with_number, self._can_begin = person_with_number, can_begin
        self._sessions, self._clock, self._metrics = sessions, clock, metrics
        self._places = CapacityLimit(
            settings.max_calls,
            "{limit} telephone calls are open, the limit",
            retry_after_s=RETRY_AFTER_S,
            name="telephone calls",
            places=places,
        )

    def check_capacity(self) -> None:
        """Raises OverloadedError if `serve` would raise it now."""
        self._places.check()

    async def serve(self, line: TelephoneLine, door: str, caller: str) -> None:
        """Serves one call until its end. `door`: its name, for the log. `caller`: telephone number
        or UUID; empty: it is not known.

        Raises OverloadedError, RequestError, and RemoteProtocolError in an ExceptionGroup.
        """
        with self._place():
            person = self._person_with_number(caller)
            async with self._sessions.open(
                self._settings_for(person),
                paced_by="server",
                place=self._location_of(caller, person),
                door=door,
            ) as session:
                call = TelephoneCall(line, session, self._clock)
                end = await call.run(self.settings.max_call_s, self.settings.greeting)
        logger.info("= telephone call (%s): %s", door, end.value)

    def _settings_for(self, person: CallingPerson | None) -> SessionSettings:
        """Returns the settings of a call. A person is also heard in the own language, if it can be
        recognised."""
        usual = self.settings.initial_settings()
        if person is None or not person.language:
            return usual
        own = replace(usual, language=person.language)
        return own if self._can_begin(own) else usual

    def _location_of(self, caller: str, person: CallingPerson | None) -> DeviceLocation:
        if person is None:
            return DeviceLocation(caller=self._name_of(caller))
        return DeviceLocation(caller=person.name, caller_id=person.id)

    def _name_of(self, caller: str) -> str:
        """Returns the name by which the language model knows the caller; empty: none.

        What the network says of a caller proves nothing, and anybody may choose it. So only names
        of the configuration and plain numbers are passed on.
        """
        if name := self.settings.callers.get(caller.lower()):
            return name
        if caller in WITHHELD:
            return ""
        digits = caller.removeprefix("+")
        is_number = digits.isascii() and digits.isdigit() and len(caller) <= MAX_NUMBER_CHARS
        return caller if is_number else ""

    @contextmanager
    def _place(self) -> Iterator[None]:
        try:
            with self._places.take():
                self._report()
                yield
        finally:
            self._report()

    def _report(self) -> None:
        self._metrics.gauge("earshot_telephone_calls", self._places.taken)
