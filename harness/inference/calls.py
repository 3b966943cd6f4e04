"""The calls of an engine's worker: their times, and the outputs that are compared afterwards.

A worker writes times and outputs into files, which are read whole and checked.
"""

import math
from pathlib import Path
from typing import Any

import numpy as np

from harness.inference import scenarios
from harness.inference.answers import TestPart
from harness.inference.reference import Asked, Reference, chosen_places
from harness.inference.server import Served
from harness.workers.files import AnswerFolder, arrays_in
from harness.workers.worker import Failed, Worker

LOGS, MOST_LOGS = "loadgen.txt", 2**22
TIMES = "requests.npz"


class Calls:
    """The calls of a worker that has built its network, on one file of batches."""

    def __init__(self, worker: Worker, reference: Reference, asked: Asked, file: Path,
                 limit: float):
        self.worker, self.asked, self.file, self.limit = worker, asked, file, limit
        self.rows = reference.rows(file)
        self.done = 0
        # The place in the ring, and the compared rows of the outputs, of the last call of each run.
        self.found: list[tuple[int, np.ndarray]] = []

    def run(self, calls: int, folder: AnswerFolder) -> tuple[dict[str, Any], np.ndarray]:
        """Let the worker run calls; keep the last one's outputs.

        Returns its answer and the seconds of each call. Raises Failed and Unsupported.
        """
        answer = self.worker.ask("infer", self.limit, calls=calls,
                                 out=str(folder.path("calls.npz")))
        seconds = read_answer(folder, "calls.npz", "seconds", (calls,))
        if not (np.isfinite(seconds) & (seconds > 0)).all():
            raise Failed("protocol", "the file of 'infer': a call's time is not positive")
        self._keep_last(calls, folder)
        return answer, seconds

    def play(self, wanted: dict[str, Any], folder: AnswerFolder) -> dict[str, Any]:
        """Let LoadGen ask the worker; return a row of scenarios.csv, keep the last outputs."""
        logs, answer = self._play(wanted, folder)
        return scenarios.row_of(wanted["scenario"], wanted["batch"], answer, logs)

    def serve(self, wanted: dict[str, Any], folder: AnswerFolder) -> Served:
        """Let LoadGen send a server's requests; return what it says, and each request's times."""
        logs, answer = self._play(wanted, folder, times=str(folder.path(TIMES)))
        row = scenarios.row_of(wanted["scenario"], wanted["batch"], answer, logs)
        reached, late = scenarios.of_server(wanted["percentile"], logs)
        arrivals, latencies = read_answer(folder, TIMES, "times", (2, answer["samples"]))
        known = np.isfinite(arrivals) & (arrivals >= 0) & np.isfinite(latencies) & (latencies > 0)
        if not known.all() or (np.diff(arrivals) < 0).any():
            raise Failed("protocol", f"{TIMES}: a request is answered before it comes")
        return Served(row, reached, late, arrivals, latencies)

    def _play(self, wanted: dict[str, Any], folder: AnswerFolder, **files: str
              ) -> tuple[str, dict[str, Any]]:
        """Return LoadGen's logs, and what the worker answered."""
        answer = self.worker.ask("scenario", self.limit, wanted=wanted,
                                 out=str(folder.path(LOGS)), **files)
        with folder.open(LOGS, MOST_LOGS) as file:
            logs = file.read().decode(errors="replace")
        self._keep_last(answer["steps"], folder)
        return logs, answer

    def _keep_last(self, calls: int, folder: AnswerFolder) -> None:
        """Keep the outputs of the last of some calls."""
        self.done += calls
        batch = (self.done - 1) % len(self.rows)
        rows, places = self.rows[batch], chosen_places(self.asked.network)
        *length, width = self.asked.network.layers[-1].output_shape
        shape: tuple[int, ...] = (len(rows), width)
        if places:
            shape = (len(rows), len(places), width)
            rows = [length[0] * row + place for row in rows for place in places]
        self.worker.ask("output", self.limit, rows=rows, out=str(folder.path("outputs.npz")))
        found = read_answer(folder, "outputs.npz", "outputs", (len(rows), width))
        self.found.append((batch, found.reshape(shape)))


def answers_to(worker: Worker, tests: TestPart, folder: Path, classes: int,
               limit: float) -> np.ndarray:
    """Let an engine answer all samples of a test part; return its outputs [n, K]. Raises Failed."""
    with AnswerFolder(folder) as answers:
        worker.ask("evaluate", limit, inputs=str(tests.file), out=str(answers.path("tests.npz")))
        return read_answer(answers, "tests.npz", "outputs", (len(tests.labels), classes))


def read_answer(folder: AnswerFolder, file: str, name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Read one array of a worker's file. Raises Failed if it is not float32 of this shape."""
    with folder.open(file, 4 * math.prod(shape) + 65536) as opened:
        answered = arrays_in(opened)
        if name not in answered:
            raise Failed("protocol", f"{file}: holds no array {name}")
        found = np.array(answered[name])
    if found.dtype != np.float32 or found.shape != shape:
        raise Failed("protocol", f"{file}: {name}: came {found.dtype} {found.shape}, expected "
                                 f"float32 {shape}")
    return found
