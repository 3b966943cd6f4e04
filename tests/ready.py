"""Makes a worker ready to train or to infer, as a campaign does before its first window."""

import networks
from harness.data import arrays
from harness.inference.reference import Asked


def to_train(worker, folder, limit=60, name="tiny_fcn", batch=2, residence="host", **task):
    """Build a network on `batch` samples a device and hand it weights and two batches."""
    network = networks.get(name)
    samples = batch * task.get("devices", 1)
    arrays.save_weights(folder / "weights.npz", arrays.draw_weights(network, seed=1))
    arrays.save_batches(folder / "batches.npz",
                        *arrays.synthetic_batches(network, samples, 2, seed=1))
    worker.ask("hello", limit=300)
    worker.ask("build", limit=limit, network=network.to_json(), batch=batch, **task)
    worker.ask("load", limit=limit, weights=str(folder / "weights.npz"))
    worker.ask("feed", limit=limit, batches=str(folder / "batches.npz"), residence=residence)
    return worker


def inference_verdict(judge, worker, name, batch, residence="host", summands="", **task):
    """Build an engine of a trained network, on the CPU if no device is named, and prove it."""
    network = networks.get(name)
    task = {"precision": "fp32", "tuning": "stock", "device": "cpu", **task}
    asked = Asked(network, batch, task["precision"], summands)
    built = worker.ask("build", 600, network=network.to_json(), batch=batch, threads=1,
                       weights=str(judge.reference.weights(asked)), **task)
    return judge.prove(worker, asked, built, residence)
