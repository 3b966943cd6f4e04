"""Which networks strategies of several frameworks divide among devices, and into which pairs.

Reads the network's description alone.
"""

from runners.protocol import Unsupported

# Layers that neither mix the samples of a batch nor draw random numbers.
LAYERS = ("dense", "tied_dense", "embedding", "positions", "layer_norm", "attention", "add",
          "relu", "sigmoid", "gelu", "flatten", "tokens", "class_token", "first_token")
# Layers that may stand between two dense layers that are divided together: they compute each
# feature, or each head of attention, by itself.
BETWEEN = ("relu", "sigmoid", "gelu", "attention")


def refuse_undivided(task):
    """Raise `Unsupported` for a network with a layer that is not divided here."""
    for layer in task.network["layers"]:
        if layer["op"] not in LAYERS:
            raise Unsupported(f"strategy '{task.strategy}': layer {layer['name']}: {layer['op']} "
                              f"is not divided here; divided are networks of {', '.join(LAYERS)}")


def pairs(network, devices):
    """List pairs of dense layers: the first gives each device a part of the features in between.

    The second adds the parts up (Shoeybi et al., Megatron-LM, arXiv 1909.08053).
    """
    layers = {layer["name"]: layer for layer in network["layers"]}
    readers = {name: [other for other in layers.values() if name in other["inputs"]]
               for name in layers}
    found, taken = [], set()
    for layer in network["layers"]:
        if layer["op"] != "dense" or layer["name"] in taken:
            continue
        last = layer
        while len(readers[last["name"]]) == 1:
            (last,) = readers[last["name"]]
            if last["op"] not in BETWEEN:
                break
            heads = last["attributes"].get("heads", devices)
            if heads % devices:
                raise Unsupported("strategy 'tensor': layer {}: {} heads do not divide among {} "
                                  "devices".format(last["name"], heads, devices))
        if last["op"] == "dense" and last is not layer:
            units = layer["attributes"]["units"]
            if units % devices:
                raise Unsupported("strategy 'tensor': layer {}: {} units do not divide among {} "
                                  "devices".format(layer["name"], units, devices))
            found.append((layer["name"], last["name"]))
            taken |= {layer["name"], last["name"]}
    return found
