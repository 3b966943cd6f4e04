"""Every network by name: a function in this folder decorated with `@network(...)` is one."""

import difflib
import importlib
import pkgutil
from collections.abc import Callable
from functools import cache

from networks.builder import Builder
from networks.description import Network

# The momentum of every network here.
MOMENTUM = 0.9
_makers: dict[str, Callable[[], Network]] = {}
_small: set[str] = set()
_large: set[str] = set()
_short: dict[str, Callable[[], Network]] = {}


class UnknownNetwork(ValueError):
    """A name that no file in `networks/catalogue` gives to a network."""


Writer = Callable[[], Builder]


def network(name: str, *, data_set: str = "synthetic", batches: tuple[int, ...],
            learning_rate: float, small: bool = False, large: bool = False,
            short: Writer | None = None) -> Callable[[Writer], Writer]:
    """Register the function below under `name`; its docstring's first line becomes the title.

    `small` is for the small relatives that tests train; `large` networks, whose proof takes tens of
    gigabytes, are trained by name only. `short` writes the same layers for fewer tokens.
    """

    def register(write: Writer) -> Writer:
        if name in _makers:
            raise ValueError(f"{name}: two networks of one name")

        def built(name: str, write: Writer) -> Network:
            builder = write()
            title = (write.__doc__ or name).strip().splitlines()[0].rstrip(".")
            return Network(
                name=name, title=title, data_set=data_set, batches=batches,
                learning_rate=learning_rate, momentum=MOMENTUM,
                input_shape=builder.input_shape, vocabulary=builder.vocabulary,
                classes=builder.shapes[builder.last][-1], layers=tuple(builder.layers),
            )

        _makers[name] = cache(lambda: built(name, write))
        if short:
            _short[name] = cache(lambda: built(f"{name}_short", short))
        if small:
            _small.add(name)
        if large:
            _large.add(name)
        return write

    return register


def names(small: bool = False, large: bool = True) -> list[str]:
    """Names of the published networks, with large ones or not, or of small relatives for tests."""
    return sorted(name for name in _makers
                  if (name in _small) == small and (large or name not in _large))


def get(name: str) -> Network:
    """Return the network of that name; `UnknownNetwork` names the ones that exist."""
    if name not in _makers:
        known = names() + names(small=True)
        close = difflib.get_close_matches(name, known, n=1)
        near = f" did you mean {close[0]}?" if close else ""
        raise UnknownNetwork(f"unknown network {name};{near} Known: {', '.join(known)}")
    return _makers[name]()


def known(name: str) -> Network | None:
    """Return the network of that name, None where this release does not have it."""
    return _makers[name]() if name in _makers else None


def short_of(network: Network) -> Network:
    """Return the same layers for samples of fewer tokens, where the catalogue has them."""
    return _short.get(network.name, lambda: network)()


for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
