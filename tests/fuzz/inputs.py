"""Runs a target on random inputs. Each input has a seed of its own, which a failure names."""

import os
import random
import time
from collections.abc import Callable
from dataclasses import dataclass

Target = Callable[[random.Random], None]
"Makes one input from the lottery, and asserts what must hold for it."

SEED = os.environ.get("EARSHOT_FUZZ_SEED", "earshot")
"Another word gives other inputs."

MAX_INPUT_S = 2.0
"Of processor time for one input; the largest take some milliseconds."


@dataclass(frozen=True, slots=True)
class Fuzz:
    """One target and its share of the work: cheap ones get more inputs."""

    name: str
    target: Target
    few: int
    "Inputs in every test run: some tenths of a second."
    many: int
    "Inputs of `make soak`."


def fuzz(name: str, target: Target, inputs: int) -> None:
    """What fails says how to make the same input again."""
    for number in range(inputs):
        seed = f"{SEED}/{name}/{number}"
        began_s = time.thread_time()
        try:
            target(random.Random(seed))
            took_s = time.thread_time() - began_s
            assert took_s < MAX_INPUT_S, f"took {took_s:.1f} s"
        except BaseException as error:
            error.add_note(f"the input is made by random.Random({seed!r})")
            raise
