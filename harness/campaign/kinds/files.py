"""One process of a trial that trains from image files, read by the framework's own loader.

The step is proved as ever, on a ring. The loader gives one whole epoch before the windows and a few
mini-batches after them, which are compared with the driver's own decode; all windows train on what
it gives in between. Then training from files, the loader alone and the step alone are timed in
turn.
"""

from typing import Any

from harness.campaign.process import Process
from harness.data import arrays, delivery
from harness.workers import step_parts
from harness.workers.files import AnswerFolder, arrays_in
from harness.workers.worker import Failed, Worker

# Mini-batches that are compared after the windows.
AFTER = 2
HEADER_BYTES = 4096  # of a file of batches, for each


class FilesProcess(Process):
    """A process whose mini-batches come from files."""

    def _feed(self, worker: Worker) -> None:
        """Open the loader; compare what it gives in an epoch, and where the next one begins."""
        session, trial, row = self.session, self.trial, self.outcome.row
        limits = session.suite.limits
        self.files = session.inputs.files(self.network, trial.batch)
        self.taken = 0
        worker.ask("load", limits.build, weights=str(session.inputs.weights(self.network)))
        opened = worker.ask("open_files", limits.build, manifest=str(self.files.manifest))
        row["settings"] = "; ".join(filter(None, [row["settings"], opened["loader"]]))
        self._compare(worker, -(-len(self.files.images) // trial.batch) + 1)

    def _compare(self, worker: Worker, count: int) -> None:
        """Compare the next batches of the loader. Raises Failed if one is not what it should be."""
        self._tell("comparing what the loader gives")
        trial, session = self.trial, self.session
        size = arrays.batch_bytes(self.network, trial.batch) + HEADER_BYTES
        with AnswerFolder(session.inputs.folder) as folder:
            worker.ask("deliver", session.suite.limits.window, batches=count,
                       out=str(folder.path("batches.npz")))
            with folder.open("batches.npz", count * size) as file:
                found = arrays_in(file)
                names = [(f"{number}/inputs", f"{number}/targets") for number in range(count)]
                if absent := [name for pair in names for name in pair if name not in found]:
                    raise Failed("protocol", f"the file of 'deliver' holds no array {absent[0]}")
                batches = [(found[inputs], found[targets]) for inputs, targets in names]
                seen = delivery.compare(batches, self.files, self.taken * trial.batch, trial.batch)
        row = self.outcome.row
        row["pixel_error"] = max(row.get("pixel_error", 0.0), seen.error)
        if seen.fault:
            row.update(check="different", check_reason=f"the loader: {seen.fault}")
            raise Failed("different", f"the loader: {seen.fault}")
        self.taken += count

    def _run(self, worker: Worker, steps: int) -> dict[str, Any]:
        self.taken += steps
        return super()._run(worker, steps)

    def _time(self, worker: Worker) -> None:
        super()._time(worker)
        self._compare(worker, AFTER)
        self._tell("loader and step alone")
        session, trial, limits = self.session, self.trial, self.session.suite.limits
        ring = session.inputs.batches(self.network, trial.batch, "device")
        worker.ask("load", limits.build, weights=str(session.inputs.weights(self.network)))
        worker.ask("feed", limits.build, batches=str(ring), residence="device")
        self.outcome.loading = step_parts.measure(
            worker, session.suite, trial, int(self.outcome.row["window_steps"]),
            step_parts.OF_FILES)
