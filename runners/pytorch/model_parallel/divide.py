"""Where a network can be divided: pairs of dense layers, segments of layers, stages of segments.

Reads the network's description alone, so nothing here imports torch.
"""

from math import prod

from runners.protocol import Unsupported

# What may stand between two dense layers that are divided together: each feature, or each head of
# attention, is computed by itself.
BETWEEN = ("relu", "sigmoid", "gelu", "attention")


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


def segments(network):
    """List the names of layers between places where one value alone is needed later.

    Every segment has parameters or a head that uses another layer's.
    """
    layers, found, here = network["layers"], [], []
    for number, layer in enumerate(layers):
        here.append(layer)
        needed = {source for later in layers[number + 1:] for source in later["inputs"]}
        done = {each["name"] for each in layers[:number + 1]} | {"input"}
        if needed & done <= {layer["name"]}:
            trains = any(each["parameters"] or "tied" in each["attributes"] for each in here)
            if found and not trains:
                found[-1] += here
            else:
                found.append(here)
            here = []
    return [[layer["name"] for layer in segment] for segment in found]


def stages(network, count):
    """Group segments into `count` stages so that the longest one has the fewest multiply-adds."""
    parts, works = segments(network), multiply_adds(network)
    if len(parts) < count:
        raise Unsupported("a pipeline of {} stages: {} can be cut at {} places".format(
            count, network["name"], len(parts) - 1))
    costs = [sum(works[name] for name in part) for part in parts]
    # Of the first segments in so many stages: the longest stage's work, and where the last begins.
    best = {(0, 0): (0, 0)}
    for stage in range(1, count + 1):
        for end in range(stage, len(parts) + 1):
            best[stage, end] = min((max(best[stage - 1, start][0], sum(costs[start:end])), start)
                                   for start in range(stage - 1, end)
                                   if (stage - 1, start) in best)
    found, end = [], len(parts)
    for stage in range(count, 0, -1):
        start = best[stage, end][1]
        found.insert(0, [name for part in parts[start:end] for name in part])
        end = start
    return found


def multiply_adds(network):
    """Return the multiply-adds of each layer's forward pass for one sample."""
    shapes, found = {"input": network["input_shape"]}, {}
    for layer in network["layers"]:
        source, output = shapes[layer["inputs"][0]], layer["output_shape"]
        shapes[layer["name"]] = output
        found[layer["name"]] = 0
        if layer["op"] in ("dense", "tied_dense"):
            found[layer["name"]] = source[-1] * prod(output)
        elif layer["op"] == "conv2d":
            found[layer["name"]] = prod(layer["parameters"]["weight"][1:]) * prod(output)
        elif layer["op"] == "attention":
            found[layer["name"]] = 2 * output[0] * prod(output)
    return found


def micro_batches(rows, stages):
    """Return how many equal parts of `rows` go through a pipeline: at most four a stage."""
    count = max(each for each in range(1, 4 * stages + 1) if rows % each == 0)
    if count < stages:
        raise Unsupported(f"a pipeline of {stages} stages: a global batch of {rows} has no "
                          f"{stages} to {4 * stages} equal parts")
    return count


def named(groups):
    """Return names as one word of settings: the last of each group."""
    return ", ".join(group[-1] for group in groups)
