"""Client of Home Assistant. It connects in the background, reconnects, and keeps the names up to
date."""

import asyncio
import logging
from enum import Enum

from aiohttp import ClientError, ClientSession, ClientTimeout, DummyCookieJar

from core.errors import ConfigError, EarshotError, first_error
from core.ports import Clock, Metrics
from core.tasks import Backoff, single_error
from devices.home_assistant.conversation import ConversationResult, parse_result
from devices.home_assistant.entities import EntityMirror
from devices.home_assistant.errors import (
    HomeAssistantAccessError,
    HomeAssistantCommandError,
    HomeAssistantError,
    HomeAssistantTimeout,
    HomeAssistantUnreachable,
)
from devices.home_assistant.protocol import SubscriptionEvent
from devices.home_assistant.registries import CHANGES, HomeAssistantHouse, fetch, subscribe
from devices.home_assistant.rest import post_sentence
from devices.home_assistant.settings import HomeAssistantSettings
from devices.home_assistant.websocket import HomeAssistantWebSocket, connect
from pipeline.tools.home import HomeEntity

logger = logging.getLogger(__name__)

FIRST_WAIT_S = 1.0
"Wait before the second attempt to connect, in seconds. It doubles with each further attempt."

LONGEST_WAIT_S = 60.0
"Longest wait between attempts, in seconds."

LASTED_S = 10.0
"""A connection that lasted this long counts as good: the next attempt comes after the first wait
again."""

DEBOUNCE_S = 2.0
"""Wait for further changes, in seconds. Adding an integration changes the registries a hundred
times within a second."""

CONNECT_TIMEOUT_S = 2.0
"Limit for connecting over REST, in seconds: a user waits for the answer or the error."


class ConnectionState(Enum):
    """State of the connection to Home Assistant."""

    CONNECTING = "connecting"
    "State before the first attempt is finished."
    CONNECTED = "connected"
    AWAY = "away"
    "State without a connection; it is tried again, with growing waits."
    REFUSED = "refused"
    "State without further attempts: the token is wrong, or Home Assistant has banned our address."


class HomeAssistantClient:
    """One client of Home Assistant for all conversations.

    `run` connects; all other methods may be called at any time, connected or not.
    """

    def __init__(
        self,
        settings: HomeAssistantSettings,
        clock: Clock,
        metrics: Metrics,
        *,
        mirror: EntityMirror | None = None,
        first_wait_s: float = FIRST_WAIT_S,
        debounce_s: float = DEBOUNCE_S,
    ) -> None:
        self.settings = settings
        self.house = HomeAssistantHouse()
        self.state = ConnectionState.CONNECTING
        self.reason = ""
        "Why it is not connected."
        self._clock, self._metrics, self._mirror = clock, metrics, mirror
        self._backoff = Backoff.doubling(first_wait_s, LONGEST_WAIT_S, LASTED_S)
        self._debounce_s = debounce_s
        self._began_s = 0.0
        self._http: ClientSession | None = None
        self._websocket: HomeAssistantWebSocket | None = None
        self._retry_now = asyncio.Event()
        "Set when Home Assistant was reached over REST, so that a connection is tried at once."
        self._names_changed = asyncio.Event()
        "Set when names may have changed."
        self._state_changed = asyncio.Event()
        "Set at the next change of `state`, and then replaced."
        self._first_attempt_over = asyncio.Event()
        "Set when the names are known, or the first attempt has failed."

    async def wait_for_names(self, timeout_s: float) -> None:
        """Waits until the names are known or the first attempt has failed, at most `timeout_s`."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._first_attempt_over.wait()
        except TimeoutError:
            logger.info("home assistant: no names within %g s; starting without them", timeout_s)

    async def wait_for_state(self, *states: ConnectionState) -> None:
        """Waits for one of these states."""
        while self.state not in states:
            await self._state_changed.wait()

    async def converse(
        self, text: str, language: str, conversation_id: str | None
    ) -> ConversationResult:
        """Sends a sentence to Home Assistant, which acts on it, and returns its answer.

        Uses REST while there is no WebSocket connection.
        language: that of the user; `settings.language` overrides it.
        conversation_id: Home Assistant's id of a conversation to continue; None: a new one.
        Raises HomeAssistantError, RemoteProtocolError and OverloadedError.
        """
        request: dict[str, str] = {"text": text, "language": self.settings.language or language}
        if self.settings.agent_id:
            request["agent_id"] = self.settings.agent_id
        if conversation_id is not None:  # an id of null is refused with an error
            request["conversation_id"] = conversation_id
        began_s, outcome = self._clock.now(), "cancelled"
        try:
            async with asyncio.timeout(self.settings.timeout_s):
                answer = parse_result(await self._process(request))
            outcome = answer.kind if answer.kind in ("action_done", "query_answer") else "error"
        except TimeoutError:
            outcome = HomeAssistantTimeout.code
            raise HomeAssistantTimeout(f"no answer within {self.settings.timeout_s:g} s") from None
        except EarshotError as error:
            outcome = error.code
            raise
        finally:
            self._metrics.observe(
                "earshot_home_assistant_seconds", self._clock.now() - began_s, outcome=outcome
            )
        return answer

    def states(self) -> tuple[HomeEntity, ...]:
        """Returns the present states of the entities that the page shows; empty if the page shows
        no home."""
        return self._mirror.states() if self._mirror is not None else ()

    async def call_service(self, domain: str, service: str, data: dict[str, object]) -> None:
        """Calls a service for the entities that `data` names under `entity_id`. Raises
        HomeAssistantError."""
        websocket = self._websocket
        if websocket is None:
            raise self._not_connected()
        try:
            async with asyncio.timeout(self.settings.timeout_s):
                await websocket.call(
                    "call_service", domain=domain, service=service, service_data=data
                )
        except TimeoutError:
            raise HomeAssistantTimeout(f"no answer within {self.settings.timeout_s:g} s") from None

    async def run(self) -> None:
        """Keeps the connection until cancelled. Returns when Home Assistant refuses it. Never
        raises an error."""
        self._backoff.reset()
        timeout = ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S)
        async with ClientSession(timeout=timeout, cookie_jar=DummyCookieJar()) as self._http:
            while await self._attempt(self._http):
                await self._pause(self._backoff.fail(self._clock.now() - self._began_s))

    async def _attempt(self, http: ClientSession) -> bool:
        """Runs one connection from its beginning to its end. Returns False when Home Assistant
        refused it, so that no other attempt follows."""
        if self._is_refused():  # Home Assistant refused the token over REST meanwhile
            return False
        self._began_s = self._clock.now()
        try:
            await self._run_connection(http)
        except* HomeAssistantAccessError as errors:
            self._refuse(first_error(errors))
        except* (EarshotError, ClientError, OSError) as errors:
            self._log_lost(first_error(errors))
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise asyncio.CancelledError  # a TaskGroup that ends with errors forgets it
        return not self._is_refused()

    def _is_refused(self) -> bool:
        return self.state is ConnectionState.REFUSED

    async def _pause(self, seconds: float) -> None:
        """Waits, but only until Home Assistant is reached over REST."""
        self._retry_now.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._retry_now.wait()
        except TimeoutError:
            pass

    async def _run_connection(self, http: ClientSession) -> None:
        """Runs one connection. Raises what ends it, possibly as an ExceptionGroup."""
        async with (
            connect(http, self.settings, self._on_event) as websocket,
            asyncio.TaskGroup() as tasks,
        ):
            tasks.create_task(websocket.run(), name="home-assistant-link")
            await websocket.call("supported_features", features={"coalesce_messages": 1})
            self._websocket = websocket
            self._set_state(ConnectionState.CONNECTED)
            try:
                await self._keep_names(websocket)
            finally:
                self._websocket = None

    async def _keep_names(self, websocket: HomeAssistantWebSocket) -> None:
        await subscribe(websocket)
        while True:
            self._names_changed.clear()
            self._set_house(await fetch(websocket))
            if self._mirror is not None:
                await self._update_mirror(self._mirror, websocket)
            try:
                async with asyncio.timeout(self.settings.refresh_s):
                    await self._names_changed.wait()
                await asyncio.sleep(self._debounce_s)
            except TimeoutError:
                pass

    async def _update_mirror(self, mirror: EntityMirror, websocket: HomeAssistantWebSocket) -> None:
        try:
            await mirror.show(self.house, websocket)
        except (
            HomeAssistantCommandError,
            ConfigError,
        ) as error:  # an old version, no permission, or odd data: the page shows less
            logger.warning("! home assistant: its states cannot be shown on the page: %s", error)

    def _on_event(self, event: SubscriptionEvent) -> None:
        if event.event.get("event_type") in CHANGES:
            self._names_changed.set()
        elif self._mirror is not None:
            self._mirror.take(event)

    async def _process(self, request: dict[str, str]) -> object:
        websocket = self._websocket
        if websocket is not None:
            try:
                return await websocket.call("conversation/process", **request)
            except HomeAssistantCommandError as error:
                if error.their_code == "unknown_command":
                    raise HomeAssistantUnreachable(
                        "it is starting: its conversation is not loaded yet"
                    ) from None
                raise
        if self.state is ConnectionState.REFUSED or self._http is None:
            raise self._not_connected()
        try:
            result = await post_sentence(self._http, self.settings, request)
        except HomeAssistantAccessError as error:
            self._refuse(error)
            self._retry_now.set()
            raise
        self._retry_now.set()  # Home Assistant can be reached again
        return result

    def _not_connected(self) -> HomeAssistantError:
        kind = (
            HomeAssistantAccessError
            if self.state is ConnectionState.REFUSED
            else HomeAssistantUnreachable
        )
        return kind(self.reason or "not connected yet")

    def _set_house(self, house: HomeAssistantHouse) -> None:
        self._first_attempt_over.set()
        if house == self.house:
            return
        self.house = house
        logger.info(
            "home assistant: %d entities in %d areas", len(house.entities), len(house.areas)
        )
        if house.left_out:
            logger.warning(
                "home assistant: %d exposed entities are left out, because there are too many",
                house.left_out,
            )

    def _set_state(self, state: ConnectionState, reason: str = "") -> None:
        self.state, self.reason = state, reason
        changed, self._state_changed = self._state_changed, asyncio.Event()
        changed.set()
        self._metrics.gauge("earshot_home_assistant_connected", state is ConnectionState.CONNECTED)

    def _refuse(self, error: Exception) -> None:
        self._set_state(ConnectionState.REFUSED, str(error))
        self._first_attempt_over.set()
        logger.error(
            "! home assistant: refused: %s; no new attempt until home_assistant.token is changed"
            " and the server is restarted",
            error,
        )

    def _log_lost(self, error: Exception) -> None:
        """Logs each reason once as a warning: Home Assistant may be away for days."""
        reason = (str(error) or type(error).__name__).replace(self.settings.token, "********")
        level = logging.DEBUG if reason == self.reason else logging.WARNING
        logger.log(level, "! home assistant: %s", reason)
        self._set_state(ConnectionState.AWAY, reason)
        self._first_attempt_over.set()


# One look at Home Assistant, for `earshot doctor`.


async def fetch_once(settings: HomeAssistantSettings) -> HomeAssistantHouse:
    """Connects, reads the house, and disconnects. Raises HomeAssistantError or another
    EarshotError."""
    async with ClientSession(cookie_jar=DummyCookieJar()) as http:
        try:
            with single_error():
                async with (
                    connect(http, settings, lambda event: None) as websocket,
                    asyncio.TaskGroup() as tasks,
                ):
                    reading = tasks.create_task(websocket.run())
                    found = await fetch(websocket)
                    reading.cancel()
            return found
        except (ClientError, OSError) as error:
            raise HomeAssistantUnreachable(str(error) or type(error).__name__) from error
