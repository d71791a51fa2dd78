"""The tools that decide whether a grammar must be loaded again."""

from core.ports import ToolContext, ToolSpec
from engines.llm.intents.home_names import names_of
from pipeline.tools.home import Home, default_home
from pipeline.tools.skills import HomeTools


def test_other_tools_do_not_load_the_grammar_again() -> None:
    home = list(HomeTools(Home(default_home())).tools(ToolContext("conv_1", "en")))
    schema = {"properties": {"name": {"enum": ["recipe"]}, "area": {"enum": ["desk"]}}}
    assert names_of([*home, ToolSpec("find", "", schema)]) == names_of(home)
    assert names_of(home[1:]) != names_of(home)
