"""Makes tools of Python functions: annotations give the schema, docstrings the description."""

import asyncio
import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from threading import Thread
from typing import Any, TypeVar, get_type_hints

import msgspec

from core.errors import ConfigError
from core.ports import ToolContext, ToolOutcome, ToolSpec
from pipeline.tools.skills.arguments import ToolError

MAX_THREADS = 8
"Most functions that run in threads at once; further calls wait."


class ToolThreads:
    """Runs blocking functions for one event loop, in at most MAX_THREADS threads.

    They are daemon threads: at its end the interpreter waits for the threads of a pool, so one tool
    that hangs would keep the server from ending.
    """

    def __init__(self) -> None:
        self._slots = asyncio.Semaphore(MAX_THREADS)

    async def run(self, call: Callable[[], Any]) -> object:
        """Runs `call` in a thread. Returns its result, or raises its error.

        Cancelling does not stop the function. It keeps its thread until it ends.
        """
        await self._slots.acquire()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()

        def settle(value: object, error: Exception | None) -> None:
            self._slots.release()
            if future.done():
                return
            if error is None:
                future.set_result(value)
            else:
                future.set_exception(error)

        def job() -> None:
            value, error = _value_or_error(call)
            with suppress(RuntimeError):  # the event loop is closed, so nobody waits for the result
                loop.call_soon_threadsafe(settle, value, error)

        try:
            Thread(target=copy_context().run, args=(job,), name="tool_call", daemon=True).start()
        except RuntimeError:  # the system has no more threads
            self._slots.release()
            raise
        return await future


def _value_or_error(call: Callable[[], Any]) -> tuple[object, Exception | None]:
    """Returns (result, None), or (None, error).

    An exception that would end the thread, such as SystemExit, becomes a RuntimeError.
    """
    try:
        return call(), None
    except StopIteration as error:  # a Future refuses a StopIteration
        return None, RuntimeError(f"a tool raised {error!r}")
    except Exception as error:
        return None, error
    except BaseException as error:
        return None, RuntimeError(f"a tool raised {error!r}")


MARK_ATTRIBUTE = "__earshot_tool__"
"Name of the attribute that marks a function as a tool."

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class _ToolMarks:
    read_only: bool = False
    timeout_s: float | None = None


def tool(
    *, read_only: bool = False, timeout_s: float | None = None
) -> Callable[[Function], Function]:
    """Marks an annotated function as a tool. It can still be called as before.

        @tool(read_only=True)
        def bin_day(street: str) -> dict[str, str]:
            "Tells when the bins of a street are emptied."
            return {"day": DAYS[street]}

    read_only: True for a function that changes nothing; it may run before the turn is confirmed.
    timeout_s: longest time of one call in seconds; None: `toolbox.TOOL_TIMEOUT_S`.
    """

    def mark(function: Function) -> Function:
        setattr(function, MARK_ATTRIBUTE, _ToolMarks(read_only, timeout_s))
        return function

    return mark


def load_functions(modules: Sequence[str]) -> tuple[Callable[..., Any], ...]:
    """Imports modules and returns their functions that are marked as tools. It blocks.

    Raises ConfigError for a module that cannot be imported, or that has no such function.
    """
    found: list[Callable[..., Any]] = []
    for name in modules:
        try:
            module = import_module(name)
        except (ImportError, SyntaxError) as error:
            raise ConfigError(f"tools.modules: {name!r} cannot be imported: {error}") from error
        functions = [f for f in vars(module).values() if hasattr(f, MARK_ATTRIBUTE)]
        if not functions:
            raise ConfigError(
                f"tools.modules: {name!r} has no function that is decorated with"
                " pipeline.tools.functions.tool"
            )
        found += [function for function in functions if function not in found]
    return tuple(found)


class FunctionTools:
    """A ToolProvider of Python functions.

    Raises ConfigError for a function that cannot be a tool, and for two of the same name.
    """

    def __init__(self, functions: Sequence[Callable[..., Any]]) -> None:
        tools = [_FunctionTool.of(function) for function in functions]
        self._tools = {tool.spec.name: tool for tool in tools}
        if len(self._tools) < len(tools):
            names = [tool.spec.name for tool in tools]
            twice = sorted({name for name in names if names.count(name) > 1})
            raise ConfigError(f"tools.modules: more than one function is called {', '.join(twice)}")
        self._specs = tuple(tool.spec for tool in tools)
        self._threads = ToolThreads()

    def tools(self, context: ToolContext) -> Sequence[ToolSpec]:
        return self._specs

    async def call(
        self, name: str, arguments: Mapping[str, object], context: ToolContext
    ) -> ToolOutcome:
        """Calls the function called `name` (see `ToolProvider.call`).

        Cancelling does not stop a function that runs in a thread.
        """
        function_tool = self._tools[name]
        try:
            call = function_tool.bound(arguments, context)
            if function_tool.is_async:
                return _outcome(await call())
            return _outcome(await self._threads.run(call))
        except ToolError as error:
            return ToolOutcome(error.data, error=error.code)


@dataclass(frozen=True, slots=True)
class _FunctionTool:
    """One function and the facts from its signature."""

    spec: ToolSpec
    function: Callable[..., Any]
    is_async: bool
    arguments: type[msgspec.Struct]
    "Struct with a field for each argument, which converts the model's arguments."
    context_name: str | None
    "Name of the parameter that gets the ToolContext; None: there is none."

    @classmethod
    def of(cls, function: Callable[..., Any]) -> "_FunctionTool":
        name = getattr(function, "__name__", repr(function))
        try:
            arguments, context_name = _parameters(function, name)
            schema = _schema(arguments)
        except (TypeError, NameError, ValueError) as error:
            raise ConfigError(f"the function {name!r} cannot be a tool: {error}") from error
        description = inspect.getdoc(function)
        if not description:
            raise ConfigError(
                f"the function {name!r} cannot be a tool: it needs a docstring, which tells the"
                " model what it does"
            )
        marks: _ToolMarks = getattr(function, MARK_ATTRIBUTE, _ToolMarks())
        spec = ToolSpec(name, description, schema, marks.read_only, marks.timeout_s)
        is_async = inspect.iscoroutinefunction(function)
        return cls(spec, function, is_async, arguments, context_name)

    def bound(self, arguments: Mapping[str, object], context: ToolContext) -> Callable[[], Any]:
        """Returns the function with its arguments bound. Raises ToolError invalid_arguments."""
        try:
            values = msgspec.convert(dict(arguments), self.arguments)
        except msgspec.ValidationError as error:
            raise ToolError(str(error).replace("$.", "")) from error
        # Arguments that the model left out keep the function's own defaults.
        values_by_name = {name: getattr(values, name) for name in arguments}
        if self.context_name is not None:
            values_by_name[self.context_name] = context
        return partial(self.function, **values_by_name)


def _parameters(function: Callable[..., Any], name: str) -> tuple[type[msgspec.Struct], str | None]:
    """Returns the Struct of a function's arguments, and the name of its ToolContext parameter.

    Raises TypeError, NameError or ValueError for a function that cannot be a tool.
    """
    hints = get_type_hints(function, include_extras=True)
    fields: list[tuple[str, object] | tuple[str, object, object]] = []
    context_name = None
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise TypeError(f"{parameter} cannot be passed by its name")
        if parameter.name not in hints:
            raise TypeError(f"{parameter.name} has no annotation")
        if hints[parameter.name] is ToolContext:
            context_name = parameter.name
        elif parameter.default is parameter.empty:
            fields.append((parameter.name, hints[parameter.name]))
        else:
            default = _field_default(parameter.default)
            fields.append((parameter.name, hints[parameter.name], default))
    struct = msgspec.defstruct(name, fields, kw_only=True, forbid_unknown_fields=True)
    return struct, context_name


def _field_default(value: object) -> object:
    """Returns a default for a Struct: msgspec refuses lists and dicts that are not empty."""
    mutable = isinstance(value, list | dict | set | bytearray)
    return msgspec.field(default_factory=lambda: value) if mutable else value


def _schema(arguments: type[msgspec.Struct]) -> dict[str, object]:
    (_,), definitions = msgspec.json.schema_components((arguments,), ref_template="#/$defs/{name}")
    schema = definitions.pop(arguments.__name__)
    schema.pop("title", None)
    schema.setdefault("additionalProperties", False)
    return {**schema, "$defs": definitions} if definitions else schema


def _outcome(value: object) -> ToolOutcome:
    """Converts a function's return value. Raises TypeError for values that JSON cannot hold."""
    if isinstance(value, ToolOutcome):
        return value
    if value is None:
        return ToolOutcome({"done": True})
    data = msgspec.to_builtins(value, str_keys=True)
    return ToolOutcome(data if isinstance(data, dict) else {"result": data})
