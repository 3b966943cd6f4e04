"""A study's driver, with a worker of arithmetic: windows, tolerance, order, deaths, resumption."""

import dataclasses
import random

import pytest

from analysis.records import study_reader as reading
from harness.campaign.events import Listener
from harness.environments import recipes
from harness.errors import WrongUse
from harness.studies import study as studies
from harness.studies.recorder import open_study
from harness.studies.study import Bench, Effort, Study, measure_point
from harness.workers.worker import Failed, Unsupported

POINTS = [{"point": f"size {size}", "size": size} for size in (1, 2, 3)]
BY_NAME = {point["point"]: point for point in POINTS}


class Arithmetic:
    """A worker whose candidates take as long as it is told: `seconds` by name; it dies at the point `deadly`."""

    def __init__(self, seconds, errors=None, deadly=None):
        self.seconds, self.errors, self.deadly = seconds, errors or {}, deadly
        self.asked = []
        self.status = "ok"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None

    def ask(self, command, limit, **arguments):
        self.asked.append((command, arguments))
        if command == "place":
            if arguments["point"]["point"] == self.deadly:
                raise Failed("crashed", "signal SIGSEGV")
            return {"candidates": {name: {"status": self.status, "reason": "", "operations": 1, "error": self.errors.get(name)}
                                   for name in self.seconds}}
        return {"windows": [(0.0, steps * self.seconds[name]) for name, steps in arguments["runs"]]}


class DeadlyEverywhere(Arithmetic):
    def ask(self, command, limit, **arguments):
        raise Failed("crashed", "signal SIGSEGV")


def study_of(points=POINTS, **effort):
    bench = Bench("pytorch", "none", points)
    return Study("gemm", [bench], Effort(**{"processes": 1, "windows": 3, **effort}), {}, lambda *_: 1e-3)


def measured(worker, **effort):
    rows = measure_point(worker, POINTS[0], study_of(**effort), random.Random(0))
    return {row.pop("candidate"): row for row in rows}


def test_a_window_is_as_long_as_asked_for():
    found = measured(Arithmetic({"fast": 0.001}), window_seconds=0.01)
    assert found == {"fast": {"status": "ok", "reason": "", "operations": 1, "steps": 10, "seconds": "0.001 0.001 0.001"}}


def test_what_is_slow_is_timed_once():
    found = measured(Arithmetic({"slow": 0.5, "fast": 0.25}), once_seconds=0.5)
    assert (found["slow"]["seconds"], found["slow"]["steps"]) == ("0.5", 1)
    assert found["fast"]["seconds"] == "0.25 0.25 0.25"


def test_a_wrong_result_is_different_and_not_timed():
    worker = Arithmetic({"right": 0.1, "wrong": 0.1, "nan": 0.1}, {"right": 1e-3, "wrong": 1.1e-3, "nan": float("nan")})
    found = measured(worker)
    assert (found["right"]["status"], found["wrong"]["status"], found["nan"]["status"]) == ("ok", "different", "different")
    assert found["wrong"]["reason"] == "relative error 0.0011 against float64, allowed 0.001"
    assert "seconds" not in found["wrong"]
    assert {name for command, asked in worker.asked if command == "time" for name, _ in asked["runs"]} == {"right"}


def test_windows_of_candidates_are_interleaved():
    worker = Arithmetic({"a": 0.01, "b": 0.01})
    measure_point(worker, POINTS[0], study_of(windows=8), random.Random(0))
    names = [name for name, _ in worker.asked[-1][1]["runs"]]
    assert sorted(names) == ["a"] * 8 + ["b"] * 8
    assert names != sorted(names) and names != sorted(names, reverse=True)


@pytest.fixture
def folder(tmp_path):
    page = {"schema": 1, "study": "gemm", "settings": {}, "effort": {}, "workers": {}}
    open_study(tmp_path, page, BY_NAME)
    return tmp_path


def walk(folder, workers, points=POINTS):
    """One process over `points`; each start takes the next of `workers`."""
    study = study_of(points)
    records = open_study(folder, {}, BY_NAME)
    studies._run_process(study, 0, study.benches[0], lambda: workers.pop(0), records, lambda _: None)


def test_a_point_that_ends_the_worker_is_a_failed_row_and_the_others_are_measured(folder):
    walk(folder, [Arithmetic({"a": 0.1}, deadly="size 2") for _ in range(2)])
    found = reading.estimates(reading.read(folder)).set_index("point")
    assert found["status"].to_dict() == {"size 1": "ok", "size 2": "failed", "size 3": "ok"}
    assert found.loc["size 2", "reason"] == "crashed: signal SIGSEGV"
    assert found.loc["size 3", "size"] == 3 and found.loc["size 3", "seconds"] == 0.1


def test_a_point_that_fails_whole_gets_the_next_one_another_worker(folder):
    broken, sound = Arithmetic({"a": 0.1}), Arithmetic({"a": 0.1})
    broken.status = "failed"
    workers = [broken, sound]
    walk(folder, workers)
    assert workers == []
    assert sorted(reading.estimates(reading.read(folder))["status"]) == ["failed", "ok", "ok"]


def test_a_worker_that_does_not_begin_is_a_row_for_each_point(folder):
    def refuse():
        raise Unsupported("no wheel for this device")

    study = study_of()
    studies._run_process(study, 0, study.benches[0], refuse, open_study(folder, {}, BY_NAME), lambda _: None)
    found = reading.estimates(reading.read(folder))
    assert set(found["reason"]) == {"no wheel for this device"} and len(found) == 3


def test_a_framework_without_this_device_is_rows_and_not_the_end(tmp_path, monkeypatch):
    monkeypatch.setattr(recipes, "unsupported", lambda *_: "only on Sundays")
    place = studies.place_of(studies.plan(["pytorch"], "cpu", {}), 1)
    studies.run(study_of(), place, tmp_path / "study", False, Listener())
    assert set(reading.estimates(reading.read(tmp_path / "study"))["reason"]) == {"only on Sundays"}


def test_a_study_goes_on_only_on_the_machine_that_began_it(tmp_path, monkeypatch):
    monkeypatch.setattr(recipes, "unsupported", lambda *_: "only on Sundays")
    place = studies.place_of(studies.plan(["pytorch"], "cpu", {}), 1)
    for _ in range(2):
        studies.run(study_of(), place, tmp_path / "study", True, Listener())
    place.plan.machine["cpu"]["model"] = "another"
    with pytest.raises(WrongUse, match=r"study.json: machine.cpu.model was .*, and is another now"):
        studies.run(study_of(), place, tmp_path / "study", True, Listener())


def test_where_workers_keep_dying_the_rest_is_given_up_and_says_so(folder, monkeypatch):
    monkeypatch.setattr(studies, "DEATHS", 1)
    walk(folder, [DeadlyEverywhere({"a": 0.1}) for _ in POINTS])
    reasons = sorted(reading.estimates(reading.read(folder))["reason"])
    assert reasons == ["crashed: given up after 2 points that failed as a whole", *["crashed: signal SIGSEGV"] * 2]


def test_a_killed_study_forgets_the_point_that_was_being_written(folder):
    walk(folder, [Arithmetic({"a": 0.1, "b": 0.1})])
    file = folder / "measurements.csv"
    whole = file.read_text()
    assert len(reading.finished(folder)) == 3
    file.write_text(whole[:-5])
    last = whole.splitlines()[-1].split(",")[2]
    assert reading.finished(folder) == {("pytorch", 0, point["point"]) for point in POINTS if point["point"] != last}
    assert last not in file.read_text() and file.read_text().endswith("\n")


def test_other_points_are_not_a_study_to_go_on_with(folder):
    with pytest.raises(WrongUse, match="the study there has other points"):
        open_study(folder, {}, {"size 9": {"point": "size 9", "size": 9}})


def test_rows_are_added_under_the_header_of_an_earlier_release(folder):
    file = folder / "measurements.csv"
    header = file.read_text().replace(",errors,kernels", "")
    file.write_text(header)
    open_study(folder, {}, BY_NAME).append([{"bench": "pytorch", "process": 0, "point": "size 1", "candidate": "a", "status": "ok",
                                             "error": "0.1", "seconds": "0.5", "errors": "o=0.1", "kernels": "flash"}])
    assert file.read_text() == header + "pytorch,0,size 1,a,ok,,0.1,,,,,0.5\n"
    assert reading.estimates(reading.read(folder))["seconds"].tolist() == [0.5]


class Seen(Arithmetic):
    """A worker that says what its candidates call; `refusal` is raised instead."""

    def __init__(self, called, refusal=None):
        super().__init__(dict.fromkeys(called, 0.1))
        self.called, self.refusal = called, refusal

    def ask(self, command, limit, **arguments):
        if command != "called":
            return super().ask(command, limit, **arguments)
        if self.refusal:
            raise self.refusal
        return {"called": {name: self.called[name] for name in arguments["names"]}}


def seen(folder, worker, process=0):
    def fault(_bench, candidate, names):
        return f"it called {names[0]}" if names[0] != candidate else ""

    study = dataclasses.replace(study_of(), called=fault)
    records = open_study(folder, {}, BY_NAME)
    studies._run_process(study, process, study.benches[0], lambda: worker, records, lambda _: None)
    return reading.read(folder).measurements.drop_duplicates("candidate").set_index("candidate")


def test_what_calls_another_candidate_s_kernel_is_different_and_has_no_times(folder):
    found = seen(folder, Seen({"honest": ["honest", "more", "more"], "silent": ["other"]}))
    assert found["status"].to_dict() == {"honest": "ok", "silent": "different"}
    assert found["kernels"].to_dict() == {"honest": "honest; more", "silent": "other"}
    assert found.loc["silent", "reason"] == "it called other" and not len(found.loc["silent", "seconds"])
    assert reading.faults(reading.read(folder)) == [
        ("measurements.csv", f"line {line}", "error", "the error of what was timed", "nan") for line in (2, 4, 6)]


def test_only_the_first_process_looks(folder):
    assert set(seen(folder, Seen({"silent": ["other"]}), process=1)["status"]) == {"ok"}


@pytest.mark.parametrize("refusal", [Unsupported("no CUPTI"), Failed("crashed", "no CUPTI", answered=True)])
def test_times_stay_where_nobody_can_look_and_the_reason_is_recorded(folder, refusal):
    found = seen(folder, Seen({"a": ["a"]}, refusal))
    assert found["status"].tolist() == ["ok"]
    assert found.loc["a", "kernels"].startswith("not seen: ") and "no CUPTI" in found.loc["a", "kernels"]
