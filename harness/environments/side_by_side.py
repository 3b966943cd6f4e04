"""Builds several environments at a time: pip works on one core, and waits for the network."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import TypeVar

from harness.environments import commands

MOST = 4

Made = TypeVar("Made")


def make_all(makers: Sequence[Callable[[], Made]]) -> list[Made]:
    """Call each maker in a thread and return what they return, in order.

    The first error, or Ctrl-C, ends the programs that the others run, and is raised.
    """
    if not makers:
        return []
    with (
        commands.stopping() as stop,
        ThreadPoolExecutor(min(len(makers), os.cpu_count() or 1, MOST)) as pool,
    ):
        made = [pool.submit(maker) for maker in makers]
        try:
            wait(made, return_when=FIRST_EXCEPTION)
            errors = [each.exception() for each in made if each.done()]
            for error in filter(None, errors):
                raise error
        except BaseException:
            for each in made:
                each.cancel()
            stop()
            raise
        return [each.result() for each in made]
