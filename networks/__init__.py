"""What is trained, as data: layers, shapes, parameters and operations of every network.

`names()` lists the networks, `get(name)` builds one. Frameworks never see these classes: the driver
sends `Network.to_json()` to the workers. Nothing here imports a framework or any other folder.
"""

from networks.catalogue import UnknownNetwork, get, known, names, short_of
from networks.description import Layer, Network

__all__ = ["Layer", "Network", "UnknownNetwork", "get", "known", "names", "short_of"]
