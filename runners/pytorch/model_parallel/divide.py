"""Where a network can be cut: segments of layers, and stages of segments.

Reads the network's description alone, so nothing here imports torch.
"""

from math import prod

from runners.protocol import Unsupported


def segments(network):
    """Cut the network wherever later layers read one value only; list each segment's layers.

    Every segment but the first has parameters, or a head that uses another layer's.
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
    # (stages, segments) -> the work of the longest stage, and where the last stage begins.
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
    """Return into how many equal parts a pipeline divides `rows`: at most four a stage."""
    count = max(each for each in range(1, 4 * stages + 1) if rows % each == 0)
    if count < stages:
        raise Unsupported(f"a pipeline of {stages} stages: a global batch of {rows} has no "
                          f"{stages} to {4 * stages} equal parts")
    return count


def named(groups):
    """Name groups of layers for the settings: by the last layer of each."""
    return ", ".join(group[-1] for group in groups)
