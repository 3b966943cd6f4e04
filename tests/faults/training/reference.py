"""How `training` reads and writes the reference's state."""

# The axis of an LSTM's gates.
GATES = 0


def read(runner):
    return {(kind, name): value.copy()
            for kind, values in (("parameter", runner.weights), ("velocity", runner.velocities))
            for name, value in values.items()}


def write(runner, values):
    kinds = {"parameter": runner.weights, "velocity": runner.velocities}
    for (kind, name), value in values.items():
        kinds[kind][name] = value
