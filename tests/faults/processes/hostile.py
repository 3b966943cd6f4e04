"""The reference with one dishonest or broken answer: `processes.hostile:NAME`, from `CASES`.

`Scripted` is such a worker without a process, so that a campaign of a hundred takes seconds. A real
one is `Worker(python, "tests.faults.processes.hostile:NAME", ...)`, as for every other fault.
"""

import json
import os
import queue
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from harness.workers.worker import Worker
from runners.protocol import Unsupported
from runners.reference.runner import Runner
from runners.session import Session
from runners.wire import Wire

HUGE = 10**30


@dataclass(frozen=True)
class Case:
    """A command whose answer is changed, and words of the reason that its row must have."""

    command: str
    change: Callable[[dict[str, Any], dict[str, Any]], Any]
    words: str
    kind: str = "protocol"

    def line(self, answer: dict[str, Any], arguments: dict[str, Any]) -> bytes:
        """Return what the worker writes instead of its honest answer."""
        changed = self.change(answer, arguments)
        text = json.dumps(changed) if isinstance(changed, dict) else changed
        return text if isinstance(text, bytes) else text.encode(errors="surrogatepass") + b"\n"


def put(command: str, words: str, kind: str = "protocol", **fields: Any) -> Case:
    return Case(command, lambda answer, _: {**answer, **fields}, words, kind)


def drop(command: str, field: str) -> Case:
    return Case(command, lambda answer, _: {key: value for key, value in answer.items()
                                            if key != field}, f"{field}: missing")


def only(words: str, fails: str = "protocol", **fields: Any) -> Case:
    """An answer of the message's number and these fields alone."""
    return Case("run", lambda answer, _: {"id": answer["id"], **fields}, words, fails)


def raw(line: str | bytes, words: str = "not a line of JSON") -> Case:
    return Case("run", lambda answer, _: line, words)


def times(change: Callable[[float, float], tuple[Any, Any]], words: str = "start and stop") -> Case:
    def changed(answer: dict[str, Any], _: dict[str, Any]) -> dict[str, Any]:
        start, stop = change(answer["start"], answer["stop"])
        return {**answer, "start": start, "stop": stop}

    return Case("run", changed, words)


def file(spoil: Callable[[Path], None], words: str) -> Case:
    """Spoil the file of arrays that the proof has just saved."""
    def changed(answer: dict[str, Any], arguments: dict[str, Any]) -> dict[str, Any]:
        spoil(Path(arguments["out"]))
        return answer

    return Case("train", changed, words)


def instead(make: Callable[[Path], Any]) -> Callable[[Path], None]:
    def spoil(path: Path) -> None:
        path.unlink()
        make(path)

    return spoil


def saved(change: Callable[[dict[str, np.ndarray]], dict[str, Any]], save: Any = np.savez
          ) -> Callable[[Path], None]:
    def spoil(path: Path) -> None:
        with np.load(path) as arrays:
            found = dict(arrays)
        save(path, **change(found))

    return spoil


def link_to_the_reference(path: Path) -> None:
    answers = sorted(path.parents[1].glob("*.plain-answer-*.npz"))
    path.symlink_to(answers[0])


def link_the_folder(path: Path) -> None:
    """Put a link to another folder in the place of the file's own."""
    folder = path.parent
    other = folder.with_suffix(".other")
    folder.rename(other)
    (other / path.name).unlink()
    folder.symlink_to("/dev", target_is_directory=True)


def sparse(path: Path) -> None:
    with path.open("wb") as opened:
        opened.truncate(2**40)


def lying_header(path: Path) -> None:
    """State a shape of a terabyte over the data of a few numbers."""
    text = "{'descr': '<f4', 'fortran_order': False, 'shape': (274877906944,), }\n"
    header = b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("1/parameters/dense1.weight.npy", header + bytes(64))


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def first(found: dict[str, np.ndarray]) -> str:
    return next(name for name in found if name.startswith("1/shapes/"))


NOT_NUMBERS = {"null": None, "text": "fast", "list": [1], "object": {}, "true": True}
CANNOT_BE_READ = "the file of answers cannot be read"
NESTED = '{"id": 1, "a": ' + 100_000 * "[" + 100_000 * "]" + "}\n"

CASES: dict[str, Case] = {
    **{f"run_no_{field}": drop("run", field)
       for field in ("steps", "start", "stop", "loss", "peak_memory_bytes")},
    **{f"run_{field}_{name}": put("run", f"{field}: came", **{field: value})
       for field in ("steps", "start", "loss", "peak_memory_bytes")
       for name, value in NOT_NUMBERS.items()},
    "run_start_nan": put("run", "start: came nan", start=float("nan")),
    "run_stop_nan": put("run", "stop: came nan", stop=float("nan")),
    "run_stop_infinite": put("run", "stop: came inf", stop=float("inf")),
    "run_start_negative": put("run", "start: came -1", start=-1.0),
    "run_backwards": times(lambda start, stop: (stop, start)),
    "run_at_once": times(lambda start, stop: (start, start)),
    "run_in_the_future": times(lambda start, stop: (start + 1e6, stop + 1e6)),
    "run_too_long": times(lambda start, stop: (start, stop + 1e6)),
    "run_in_the_past": times(lambda start, stop: (start / 2, stop / 2)),
    "run_clock_of_epoch": times(lambda start, stop: (1.7e9, 1.7e9 + 1)),
    "run_other_steps": Case("run", lambda answer, _: {**answer, "steps": answer["steps"] * 2},
                            "steps: came"),
    "run_no_steps_at_all": put("run", "steps: came 0, expected", steps=0),
    "run_negative_steps": put("run", "steps: came -1", steps=-1),
    "run_part_of_a_step": put("run", "steps: came 0.5", steps=0.5),
    "run_memory_huge": put("run", "peak_memory_bytes: came 10", peak_memory_bytes=HUGE),
    "run_memory_negative": put("run", "peak_memory_bytes: came -1", peak_memory_bytes=-1),
    "run_memory_nan": put("run", "peak_memory_bytes: came nan", peak_memory_bytes=float("nan")),
    "run_memory_fraction": put("run", "peak_memory_bytes: came 1.5", peak_memory_bytes=1.5),
    "run_loss_nan": put("run", "the loss is nan", "diverged", loss=float("nan")),
    "run_loss_infinite": put("run", "the loss is inf", "diverged", loss=float("inf")),
    "build_no_parameters": drop("build", "parameters"),
    **{f"build_parameters_{name}": put("build", "parameters: came", parameters=value)
       for name, value in {**NOT_NUMBERS, "nan": float("nan"), "negative": -1, "huge": HUGE,
                           "fraction": 0.5}.items()},
    "hello_no_release": Case("hello", lambda answer, _: {
        key: value for key, value in answer.items() if key != "release"}, "release: came ''"),
    "hello_other_release": put("hello", "release: came '1.0'", release="1.0"),
    "hello_release_of_two_lines": put("hello", "release: came '1\\n2'", release="1\n2"),
    "hello_release_with_escapes": put("hello", "release: came", release="\x1b[2J1.0"),
    "hello_release_surrogate": put("hello", "release: came", release="1\ud800"),
    "hello_release_long": put("hello", "release: came", release=200_000 * "9"),
    "hello_release_number": put("hello", "release: came 2.0", release=2.0),
    "hello_release_null": put("hello", "release: came None", release=None),
    "hello_device_of_two_lines": put("hello", "device_name: came", device_name="a\r\nb"),
    "hello_device_list": put("hello", "device_name: came", device_name=["a"]),
    "hello_libraries_text": put("hello", "libraries: came", libraries="all"),
    "hello_pid_huge": put("hello", "pid: came", pid=HUGE),
    "train_no_losses": drop("train", "losses"),
    **{f"train_losses_{name}": put("train", "losses", losses=value)
       for name, value in {"null": None, "text": "low", "empty": [], "of_null": [None],
                           "of_text": ["low"], "of_lists": [[1.0]], "object": {},
                           "many": 100 * [1.0]}.items()},
    "file_missing": file(Path.unlink, "the file of answers: No such file"),
    "file_empty": file(instead(Path.touch), CANNOT_BE_READ),
    "file_cut": file(cut, CANNOT_BE_READ),
    "file_of_text": file(lambda path: path.write_text("weights\n") and None, CANNOT_BE_READ),
    "file_compressed": file(saved(lambda found: found, np.savez_compressed), "is compressed"),
    "file_bomb": file(saved(lambda found: {**found, "more": np.zeros(2**24, np.float32)},
                            np.savez_compressed), "is compressed"),
    "file_large": file(saved(lambda found: {**found, "more": np.zeros(2**20, np.float32)}),
                       "expected at most"),
    "file_of_a_terabyte": file(instead(sparse), "came 1,099,511,627,776 bytes"),
    "file_of_strings": file(saved(lambda found: {**found, first(found): np.array(["a"])}), "came <U1"),
    "file_of_objects": file(saved(lambda found: {**found, first(found): np.array([{}], dtype=object)}),
                            CANNOT_BE_READ),
    "file_of_whole_numbers": file(saved(lambda found: {**found, first(found): np.arange(3)}),
                                  "came int64, expected floating point"),
    "file_of_nothing": file(saved(lambda found: {}), "holds no array"),
    "file_lying_header": file(instead(lying_header), CANNOT_BE_READ),
    "file_folder": file(instead(Path.mkdir), "came a folder"),
    "file_fifo": file(instead(os.mkfifo), "came a FIFO"),
    "file_link_to_the_reference": file(instead(link_to_the_reference), "the file of answers: "),
    "file_hard_link": file(lambda path: os.link(path, path.with_suffix(".2")), "has another name"),
    "file_link_to_zeros": file(instead(lambda path: path.symlink_to("/dev/zero")),
                               "the file of answers: "),
    "file_link_to_itself": file(instead(lambda path: path.symlink_to(path)),
                                "the file of answers: "),
    "file_in_another_folder": file(link_the_folder, "the file of answers: No such file"),
    "no_status": only("status: came None"),
    "status_unknown": only("status: came 'fine'", status="fine"),
    "status_number": only("status: came 200", status=200),
    "failed_without_kind": only("kind: missing", status="failed", reason="no"),
    "failed_without_reason": only("reason: missing", status="failed", kind="crashed"),
    "failed_of_unknown_kind": only("kind: came 'bored'", status="failed", kind="bored", reason=""),
    "failed_of_the_drivers_kind": only("kind: came 'timed_out'", status="failed", kind="timed_out",
                                       reason=""),
    "failed_reason_number": only("reason: came 5", status="failed", kind="crashed", reason=5),
    "failed_reason_of_lines": only("one  two , 3", "crashed", status="failed", kind="crashed",
                                   reason="one\r\ntwo\ud800, 3"),
    "failed_reason_long": only("9999 ...", "crashed", status="failed", kind="crashed",
                               reason=100_000 * "9"),
    "refused_without_reason": only("reason: missing", status="unsupported"),
    "refused_reason_list": only("reason: came []", status="unsupported", reason=[]),
    "line_of_words": raw("ready when you are\n"),
    "line_list": raw("[1, 2]\n"),
    "line_number": raw("17\n"),
    "line_of_bytes": raw(b"\xff\xfe\x00\n"),
    "line_nested": raw(NESTED),
    "line_of_a_long_number": raw('{"id": ' + 6000 * "9" + "}\n"),
    "line_long": raw('{"a": "' + 5 * 2**20 * "a" + '"}\n', "a line of more than"),
    "other_id": put("run", "instead of an answer to 'run' came", id=HUGE),
    "no_id": Case("run", lambda answer, _: {key: value for key, value in answer.items()
                                            if key != "id"}, "instead of an answer to 'run' came"),
}


class Scripted(Worker):
    """A worker within the driver: its session answers as soon as it is asked."""

    def _start(self, interpreter: str, module: str, *_: Any) -> Any:
        self.lines = queue.Queue()
        self.case = CASES.get(module.rpartition(":")[2])
        self.session = Session(Runner)
        wire = SimpleNamespace(write=self._answer, flush=lambda: None, close=lambda: None)
        return SimpleNamespace(pid=os.getpid(), stdin=wire, poll=lambda: None)

    def _answer(self, line: str) -> None:
        arguments = json.loads(line)
        answer, command = {"id": arguments.pop("id")}, arguments.pop("command")
        try:
            answer.update(status="ok", **getattr(self.session, command)(**arguments))
        except Unsupported as refusal:
            answer.update(status="unsupported", reason=str(refusal))
        changed = json.dumps(answer).encode() + b"\n"
        if self.case and self.case.command == command:
            changed = self.case.line(answer, arguments)
        self.lines.put(changed.decode(errors="replace"))

    def end(self) -> None:
        if not self.ended:
            self.ended = True
            self.folder.cleanup()


def __getattr__(name: str) -> type[Runner]:
    """Change the answers of this process as the case `name` says; return the honest runner."""
    if name not in CASES:
        raise AttributeError(name)
    case, asked = CASES[name], []
    honest, send = getattr(Session, case.command), Wire.send

    def command(self: Any, **arguments: Any) -> Any:
        asked.append(arguments)
        return honest(self, **arguments)

    def changed(self: Any, **message: Any) -> None:
        if not asked or "id" not in message:
            send(self, **message)
            return
        with self.lock:
            self.out.flush()
            os.write(self.out.fileno(), case.line(message, asked.pop()))

    setattr(Session, case.command, command)
    Wire.send = changed
    return Runner
