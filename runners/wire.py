"""The worker's wire: commands come in on stdin, answers go out on a private pipe, as JSON lines.

It serves the commands of a session until `close`, tells the driver that the process is alive, and
turns what a framework raises into an answer. Python 3.5 syntax, because old frameworks load this.
"""

import importlib
import json
import os
import socket
import sys
import threading
import time
import traceback

from runners import resources
from runners.protocol import Different, Unsupported
from runners.session import Session

HEARTBEAT_SECONDS = 2.0
OUT_OF_MEMORY = ("out of memory", "outofmemory", "resource_exhausted", "resource exhausted",
                 "bad_alloc", "cannot allocate memory", "unable to allocate",
                 "can't allocate memory", "failed to allocate")


class Wire:
    """JSON lines on private duplicates of stdin and stdout; the framework's stdout goes to the log.

    A launcher stands between a rank and the driver, so a rank speaks on the driver's socket
    (DLBENCH_WIRE) and first says who it is. A rank on another node first sends the driver's secret.
    """

    def __init__(self):
        self.lock = threading.Lock()
        self.rank = own_rank()
        if "DLBENCH_WIRE" in os.environ:
            self.socket = connected(os.environ["DLBENCH_WIRE"])
            self.commands, self.out = self.socket.makefile("r"), self.socket.makefile("w")
            self.send(rank=self.rank, pid=os.getpid())
        else:
            self.commands, self.out = os.fdopen(os.dup(0), "r"), os.fdopen(os.dup(1), "w", 1)
        os.dup2(2, 1)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)

    def send(self, **message):
        with self.lock:
            self.out.write(json.dumps(message) + "\n")
            self.out.flush()

    def beat_forever(self):
        """Tell the driver that this process is alive, and the processor time it has used."""
        while True:
            time.sleep(HEARTBEAT_SECONDS)
            try:
                self.send(beat=time.monotonic(), cpu_seconds=time.process_time())
            except OSError:
                # The driver has gone, so this process ends too, whatever it is doing.
                os._exit(1)


def connected(place):
    """Connect to the driver: by a path, or from any node by "tcp:address:port"."""
    if not place.startswith("tcp:"):
        wire = socket.socket(socket.AF_UNIX)
        wire.connect(place)
        return wire
    _, address, port = place.split(":")
    wire = socket.create_connection((address, int(port)))
    wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    wire.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    wire.sendall(os.environ.pop("DLBENCH_SECRET").encode())
    return wire


def own_rank():
    """Return this process's rank, from the variable that its launcher sets."""
    return int(os.environ[os.environ["DLBENCH_RANK_IN"]]) if "DLBENCH_WIRE" in os.environ else 0


def main(name):
    """Serve the class `Runner` of the module `name`, or `module:Class`, until `close`."""
    wire = Wire()
    resources.pin(os.environ.get("DLBENCH_CORES", ""), wire.rank)
    threading.Thread(target=wire.beat_forever, daemon=True).start()
    session = None
    for line in wire.commands:
        message = json.loads(line)
        number, command = message.pop("id"), message.pop("command")
        try:
            if session is None:
                session = _open(name, wire.rank)
            method = getattr(session, command, None)
            if method is None:
                raise Unsupported("this worker has no command '{}'".format(command))
            wire.send(id=number, status="ok", **method(**message))
        except Unsupported as error:
            wire.send(id=number, status="unsupported", reason=str(error))
        except Different as error:
            wire.send(id=number, status="failed", kind="different", reason=str(error))
        except BaseException as error:
            # Whatever a framework raises becomes a typed answer; the log has the traceback.
            traceback.print_exc()
            wire.send(id=number, status="failed", kind=_kind(error), reason=first_line(error))
        if command == "close":
            break
    sys.stderr.flush()
    # Frameworks' own exit handlers may crash or hang; every record is flushed by now.
    os._exit(0)


def _open(name, rank):
    """Import what is served and open its session; some modules have one of their own."""
    module_name, _, class_name = name.partition(":")
    module = importlib.import_module(module_name)
    if hasattr(module, "session"):
        return module.session()
    served = getattr(module, class_name or "Runner")
    # An engine of runners.inference and a study's bench bring their own commands.
    return getattr(served, "session", Session)(served, rank)


def _kind(error):
    text = (type(error).__name__ + " " + str(error)).lower()
    memory = isinstance(error, MemoryError) or any(phrase in text for phrase in OUT_OF_MEMORY)
    return "out_of_memory" if memory else "crashed"


def first_line(error, length=300):
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    # TensorFlow's "2 root error(s) found." says nothing yet.
    if len(lines) > 1 and lines[0].endswith("root error(s) found."):
        del lines[0]
    # After "Graph execution error:" it lists where the operation was made, and then says why.
    if lines[:1] == ["Graph execution error:"]:
        places = [number for number, line in enumerate(lines)
                  if line.startswith(("Detected at ", "File ", "<stack traces"))]
        lines = lines[max(places, default=0) + 1:] or lines
    return "{}: {}".format(type(error).__name__, lines[0][:length] if lines else "no message")
