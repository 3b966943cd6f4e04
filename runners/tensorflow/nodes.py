"""Several nodes: a process on each, joined by `tf.distribute.MultiWorkerMirroredStrategy`."""

import json
import os

import tensorflow as tf

from runners.protocol import Unsupported

COMMUNICATION = {"ring": "RING", "nccl": "NCCL"}
joined = {}


def join(task):
    """Return the strategy of all nodes; it must be the first that TensorFlow does in a process."""
    if task.device == "cpu" and task.devices > task.ranks:
        raise Unsupported("MultiWorkerMirroredStrategy has one CPU device in each process: "
                          "ask for devices: 1 of each node")
    if task.strategy not in joined:
        port = os.environ["DLBENCH_PORT"]
        workers = [address + ":" + port for address in os.environ["DLBENCH_NODES"].split(",")]
        os.environ["TF_CONFIG"] = json.dumps({
            "cluster": {"worker": workers}, "task": {"type": "worker", "index": task.rank}})
        options = tf.distribute.experimental.CommunicationOptions(implementation=getattr(
            tf.distribute.experimental.CommunicationImplementation, COMMUNICATION[task.strategy]))
        joined[task.strategy] = tf.distribute.MultiWorkerMirroredStrategy(
            communication_options=options)
    return joined[task.strategy]


def wait_for_all(strategy):
    """Return when all nodes have come here: one number goes round."""
    if "wait" not in joined:
        def add():
            context = tf.distribute.get_replica_context()
            return context.all_reduce(tf.distribute.ReduceOp.SUM, tf.ones(()))

        joined["wait"] = tf.function(lambda: strategy.run(add))
    strategy.experimental_local_results(joined["wait"]())[0].numpy()
