"""Gaps whose truth is known: made-up traces, and a step of fcn5 that an H200 ran three times. Parts that do not add up are refused.

`recorded/h200-fcn5` holds one campaign of PyTorch, JAX in IEEE fp32, and JAX as it comes under the name `jaxplain`, one process
each, recorded before traces said what hid what.
"""

import re
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from analysis.explain import report, waterfall, words
from analysis.explain.gap import Side, explain, side_of
from analysis.records import reader
from analysis.records.columns import KERNEL_COLUMNS, PHASE_COLUMNS
from analysis.statistics import bootstrap
from analysis.traces import kernels
from analysis.trials import breakdown
from analysis.trials.breakdown import NotExplained

RECORDED = Path(__file__).parents[1] / "recorded" / "h200-fcn5"
PYTORCH, JAX, PLAIN = (f"{name}-fcn5-b1024-cudax1-fp32-stock-host" for name in ("pytorch-2.11.0", "jax-0.11.2", "jaxplain-0.11.2"))
MS = 1e-3
TRIAL = {"framework": "one", "trial": "one-fcn5", "network": "fcn5", "device_kind": "cuda",
         "tuning": "stock", "data": "device", "threads": 1, "devices": 1, "precision": "fp32", "flops_per_step": 80e9}


def traced(*rows, busy=None, wall=None):
    """Rows of kernels.csv from (class, arithmetic, own ms of a step), with busy time and the step under the trace in ms."""
    table = [{"class": kind, "arithmetic": arithmetic, "transposition": "", "kernel": kind, "count_per_step": 1.0,
              "seconds_per_step": own * MS, "exposed_seconds_per_step": own * MS} for kind, arithmetic, own in rows]
    busy = sum(own for _, _, own in rows) if busy is None else busy
    ends = [("wall", busy if wall is None else wall), ("busy", busy), ("idle", 0.0)]
    return pd.DataFrame([*table, *({"class": kind, "seconds_per_step": length * MS} for kind, length in ends)],
                        columns=list(KERNEL_COLUMNS))


def timed(milliseconds, spread=0.001, processes=5):
    generator = np.random.default_rng(int(1000 * milliseconds))
    return [MS * milliseconds * (1 + spread * generator.standard_normal(8)) for _ in range(processes)]


def side(name, milliseconds, *rows, **trace):
    own = breakdown.reconcile(TRIAL | {"framework": name}, timed(milliseconds), traced(*rows, **trace))
    return Side(name, own, 50e12)


FAST = side("fast", 1.0, ("matrix product", "tf32", 0.4), ("element-wise", "", 0.2), ("copy", "", 0.1), wall=3.0)
SLOW = side("slow", 3.0, ("matrix product", "fp32", 1.8), ("element-wise", "", 0.3), ("copy", "", 0.3), wall=6.0)


def test_the_parts_of_a_step_add_up_to_its_timed_length():
    assert FAST.breakdown.parts.sum() == pytest.approx(FAST.step_seconds, rel=1e-12)
    assert (FAST.breakdown.parts / MS).round(3).to_dict() == {
        "matrix product": 0.4, "element-wise": 0.2, "copy": 0.1, "idle": 0.3, "residual": 0.0}


def test_the_parts_of_a_gap_add_up_to_the_measured_difference():
    gap = explain(FAST, SLOW)
    assert gap.parts["difference_seconds"].sum() == pytest.approx(gap.difference.value, rel=1e-12)
    assert gap.parts["share"].sum() == pytest.approx(1)
    assert (gap.parts.set_index("part")["difference_seconds"] / MS).round(2).to_dict() == {
        "matrix products (tf32 in A, fp32 in B)": 1.4, "element-wise": 0.1, "copies, exposed": 0.2,
        "GPU idle, waiting for the host": 0.3, "residual": 0.0}
    assert gap.adds_up and gap.difference.contains(2 * MS)


def test_the_sentences_name_the_arithmetic_and_what_to_do():
    said = words.sentences(explain(FAST, SLOW))
    assert re.sub(r"\(1\.99\d* to 2\.00\d*\)|\(\d\.\d\d to \d\.\d\d\)", "(..)", said[0]) == (
        "A step of slow takes 2.00 ms (..) longer than one of fast: 3.00 and 1.00 ms, 3.00 times as long.")
    assert said[1:3] == [
        "70 % of the gap is arithmetic: fast computes its matrix products in TF32, at 200 TFLOP/s, and slow in FP32, at 44.4 "
        "TFLOP/s; compare them in one arithmetic before anything else.",
        "15 % of the gap is GPU idle; slow has more. Remedy: launch less, or all at once: a compiled or captured step, or a "
        "larger batch."]
    assert any(sentence.startswith("Without the residual, the parts sum to 2.00 ms of 2.00 ms (within its interval)")
               for sentence in said)


@pytest.mark.parametrize(("tuning", "kind", "data", "remedy"), [
    ("stock", kernels.ELEMENTWISE, "device", " Remedy: a compiler would fuse them (tuning: tuned)."),
    ("tuned", kernels.ELEMENTWISE, "device", ""),
    ("tuned", kernels.IDLE, "device", " Remedy: a larger batch hides what the host does."),
    ("tuned", kernels.COPY, "device", ""),
    ("tuned", kernels.COPY, "host",
     " Remedy: pin host memory, or copy the next batch while this one trains.")])
def test_no_remedy_is_what_the_tier_does_already(tuning, kind, data, remedy):
    side = SimpleNamespace(breakdown=SimpleNamespace(trial={"tuning": tuning, "data": data}))
    assert words._remedy(side, kind) == remedy


def test_the_other_way_round_the_same_parts_have_the_other_sign():
    there, back = explain(FAST, SLOW), explain(SLOW, FAST)
    assert back.difference.value == -there.difference.value
    assert back.parts["difference_seconds"].tolist() == (-there.parts["difference_seconds"]).tolist()
    assert words.sentences(back)[0].startswith("A step of slow takes 2.00 ms")


def test_a_step_that_is_shorter_than_its_trace_leaves_a_negative_residual():
    own = side("one", 0.95, ("matrix product", "fp32", 1.0)).breakdown
    assert own.parts["idle"] == 0
    assert own.parts["residual"] == pytest.approx(own.step_seconds - MS)


def test_the_device_idles_no_longer_than_it_did_under_the_trace():
    own = side("one", 1.05, ("matrix product", "fp32", 1.0), wall=1.02).breakdown
    assert own.parts["idle"] == pytest.approx(0.02 * MS)
    assert own.parts["residual"] == pytest.approx(own.step_seconds - 1.02 * MS)


@pytest.mark.parametrize(("milliseconds", "wall"), [(0.7, None), (1.3, 1.0)])
def test_a_trace_of_other_work_is_refused(milliseconds, wall):
    with pytest.raises(NotExplained, match=r"one-fcn5: the parts do not add up: a timed step takes .* and the trace accounts for"):
        side("one", milliseconds, ("matrix product", "fp32", 1.0), wall=wall)


def test_kernels_that_ran_side_by_side_when_timed_are_said_to_be_the_residual():
    close = side("close", 0.8, ("matrix product", "fp32", 1.0))
    assert close.breakdown.parts["residual"] == pytest.approx(close.breakdown.step_seconds - MS)
    slow = side("slow", 2.0, ("matrix product", "fp32", 2.0))
    assert any(sentence.endswith("is residual: the kernels of close took longer under the trace than the timed step, in which "
                                 "they may run side by side.") for sentence in words.sentences(explain(close, slow)))


def test_no_difference_is_said_to_be_none():
    same = explain(FAST, replace(FAST, name="again"))
    assert words.sentences(same)[0].startswith("No difference is seen between fast and again: 1.00 and 1.00 ms a step.")
    # A share of what may be nothing says nothing.
    assert same.parts["share"].isna().all()
    assert "of the difference" not in report.parts(same) and "of the difference" in report.parts(explain(FAST, SLOW))


def test_equal_arithmetic_is_told_by_its_rates():
    slow = side("slow", 3.0, ("matrix product", "tf32", 2.4), wall=6.0)
    said = words.sentences(explain(FAST, slow))
    assert said[1] == ("100 % of the gap is matrix products, TF32 in both: fast reaches 200 TFLOP/s, slow 33.3 TFLOP/s, by the "
                       "network's own count.")


def test_a_part_larger_than_the_gap_is_told_as_a_time():
    slow = side("slow", 1.1, ("matrix product", "tf32", 0.8), ("element-wise", "", 0.2), wall=6.0)
    told = [sentence.split(", ")[:2] for sentence in words.sentences(explain(FAST, slow))[1:]]
    assert told[0][0] == "0.400 ms"
    assert told[0][1].endswith(" times the gap")
    assert ["0.200 ms the other way" in first for first, *_ in told].count(True) == 1


def test_an_optimiser_that_one_side_fuses_is_set_against_its_element_wise_work():
    fused = side("fused", 1.0, ("element-wise", "", 0.9), wall=3.0)
    apart = side("apart", 1.2, ("element-wise", "", 0.6), ("optimiser", "", 0.5), wall=3.0)
    gap = explain(fused, apart)
    assert any("element-wise and optimiser (fused fuses them); apart has more" in sentence
               for sentence in words.sentences(gap))
    parts = gap.parts
    assert parts["part"].tolist() == ["GPU idle, waiting for the host", "element-wise and optimiser (A fuses them)", "residual"]
    assert parts["difference_seconds"].iloc[1] == pytest.approx(0.2 * MS)
    both = explain(apart, apart).parts
    assert both["part"].tolist()[:2] == ["element-wise", "optimiser"]


def test_on_a_cpu_the_parts_are_operators_and_what_lies_outside_of_them():
    cpu = TRIAL | {"device_kind": "cpu", "flops_per_step": 6e6}
    rows = traced(("matrix product", "", 0.4), ("element-wise", "", 0.2), wall=1.5)
    fast, slow = (Side(name, breakdown.reconcile(cpu, timed(milliseconds), rows))
                  for name, milliseconds in (("fast", 0.7), ("slow", 1.1)))
    gap = explain(fast, slow)
    assert gap.parts["part"].tolist() == ["matrix products", "element-wise", "outside operators (Python and waiting)", "residual"]
    assert words.sentences(gap)[1].startswith(
        "100 % of the gap is outside operators (Python and waiting); slow has more. Remedy: launch less, or all at once")
    products = explain(fast, Side("slow", breakdown.reconcile(
        cpu, timed(1.1), traced(("matrix product", "", 0.8), ("element-wise", "", 0.2), wall=1.5))))
    assert words.sentences(products)[1] == (
        "100 % of the gap is matrix products: fast reaches 15.0 GFLOP/s, slow 7.50 GFLOP/s, by the network's own count.")


def test_of_trained_networks_the_page_speaks_of_calls():
    calls = TRIAL | {"device_kind": "cpu", "mode": "inference", "data": "host", "flops_per_step": 6e6}
    rows, slower = (traced(("matrix product", "", 0.2), ("copy", "", copies), wall=1.5) for copies in (0.1, 0.5))
    gap = explain(*(Side(name, breakdown.reconcile(calls, timed(milliseconds), own))
                    for name, milliseconds, own in (("fast", 0.3, rows), ("slow", 0.7, slower))))
    said = words.sentences(gap)
    assert said[0].startswith("A call of slow takes 400 us") and said[-1].startswith("slow: a call took ")
    assert said[1] == ("100 % of the gap is copies; slow has more. "
                       "Remedy: pin host memory, or copy the next inputs during this call.")
    assert report.parts(gap)["part"].iloc[-1] == "call" and gap.adds_up is not False


@pytest.fixture
def h200(tmp_path):
    """A copy of the recorded campaign, to read or to break."""
    return Path(shutil.copytree(RECORDED, tmp_path / "h200-fcn5"))


def gap_of(folder, a, b):
    campaign = reader.read(folder)
    return explain(*(side_of(name.partition("-")[0], campaign, name) for name in (a, b)))


def test_the_gap_between_jax_as_it_comes_and_pytorch_is_arithmetic(h200):
    gap = gap_of(h200, PLAIN, PYTORCH)
    parts = gap.parts.set_index("class")
    assert gap.difference.value == pytest.approx(1.638 * MS, abs=1e-6)
    assert parts["difference_seconds"].sum() == pytest.approx(gap.difference.value, rel=1e-12)
    assert parts.loc["matrix product", "share"] == pytest.approx(0.737, abs=0.001)
    assert parts.loc["unclassified" if "unclassified" in parts.index else "residual", "share"] == 0
    assert words.sentences(gap)[1] == (
        "74 % of the gap is arithmetic: jaxplain computes its matrix products in fewer bits than FP32 (its kernels do not say "
        "which; they run at 2.6 times its peak), at 136 TFLOP/s, and pytorch in FP32, at 46.0 TFLOP/s; compare them in one "
        "arithmetic before anything else.")
    assert not gap.a.breakdown.exact and "older releases" in words.sentences(gap)[-1]


def test_with_equal_arithmetic_the_gap_is_what_the_host_does(h200):
    parts = gap_of(h200, JAX, PYTORCH).parts.set_index("class")["share"]
    assert parts.idxmax() == "idle" and parts["idle"] > 0.4
    assert abs(parts["matrix product"]) < 0.2


def test_what_an_older_release_could_not_class_is_classed_anew_and_nothing_else(h200):
    table = pd.read_csv(h200 / "kernels.csv", keep_default_na=False)
    first, second = table.index[table["class"] == "element-wise"][:2]
    table.loc[first, ["class", "kernel"]] = ["unclassified", "at::native::compute_grad_weight<float, long>"]
    table.loc[second, ["class", "kernel"]] = ["unclassified", "no rule knows this one"]
    table.to_csv(h200 / "kernels.csv", index=False)
    found = reader.read(h200).kernels["class"]
    assert (found[first], found[second]) == ("reduction", "unclassified")
    rest = [row for row in table.index if row not in (first, second)]
    assert found[rest].tolist() == table.loc[rest, "class"].tolist()


def test_half_a_trace_is_refused(h200):
    lines = (h200 / "kernels.csv").read_text().splitlines(keepends=True)
    own = [line for line in lines if line.startswith(PYTORCH)]
    cut = own[:len(own) // 2]
    (h200 / "kernels.csv").write_text("".join(line for line in lines if line not in cut))
    with pytest.raises(NotExplained, match=r"its trace is not whole: the activities cover .*, and its busy time is 2\.206"):
        breakdown.of_trial(reader.read(h200), PYTORCH)


def test_a_trace_of_half_the_steps_is_refused(h200):
    table = pd.read_csv(h200 / "kernels.csv")
    own = table["trial"] == PYTORCH
    table.loc[own, ["count_per_step", "seconds_per_step"]] /= 2
    table.to_csv(h200 / "kernels.csv", index=False)
    with pytest.raises(NotExplained, match=r"its trace is not of whole steps: what makes .* did not run equally often"):
        breakdown.of_trial(reader.read(h200), PYTORCH)


@pytest.mark.parametrize(("rows", "reason"), [
    ("", "kernels.csv holds nothing of it: `dlbench run` the suite with trace=true"),
    (f"{PYTORCH},,no trace,,,,,,,no package cupti-python,\n", "kernels.csv says why there is no trace: no package cupti-python"),
])
def test_a_trial_without_a_trace_is_refused_with_its_reason(h200, rows, reason):
    header = (h200 / "kernels.csv").read_text().splitlines(keepends=True)[0]
    (h200 / "kernels.csv").write_text(header + rows)
    with pytest.raises(NotExplained, match=reason):
        breakdown.of_trial(reader.read(h200), PYTORCH)


def test_a_trial_that_was_never_timed_is_refused(h200):
    processes = (h200 / "processes.csv").read_text()
    (h200 / "processes.csv").write_text(processes.replace(",ok,", ",failed,"))
    with pytest.raises(NotExplained, match="no process of it ended well"):
        breakdown.of_trial(reader.read(h200), PYTORCH)


def test_an_explanation_is_a_page_a_plot_and_tables_with_the_same_numbers(h200, tmp_path):
    gap = gap_of(h200, PLAIN, PYTORCH)
    paths = report.write(gap, [reader.read(h200)], tmp_path / "out")
    assert [path.relative_to(tmp_path / "out").as_posix() for path in paths] == [
        "explain.csv", "explain_details.csv", "plots/explain.svg", "plots/explain.png", "explain.md", "explain.html"]
    assert pd.read_csv(paths[0])["difference_seconds"].sum() == pytest.approx(gap.difference.value)
    assert pd.read_csv(paths[1])["difference_seconds"].sum() == pytest.approx(
        gap.parts.loc[~gap.parts["class"].isin(["idle", "residual"]), "difference_seconds"].sum())
    text, page = paths[4].read_text(), paths[5].read_text()
    for sentence in words.sentences(gap):
        assert sentence in text
    assert "| step | 0.800 | 2.44 | +1.64 | 100.0 % |" in text
    assert page.count("<svg") == 1 and "matrix products (unnamed in A, fp32 in B)" in page


PHASES = {"F": 0.5, "FB": 1.5, "FBA": 1.5, "FBAU": 1.9}  # ms a step


def test_phases_that_both_sides_timed_stand_beside_the_parts(h200, tmp_path):
    rows = [{"trial": trial, "process": 0, "variant": variant, "window": 0, "steps": 10, "seconds": times * own * MS * 10}
            for trial, times in ((PLAIN, 1.0), (PYTORCH, 2.0)) for variant, own in PHASES.items()]
    pd.DataFrame(rows, columns=list(PHASE_COLUMNS)).to_csv(h200 / "phases.csv", index=False)
    gap = gap_of(h200, PLAIN, PYTORCH)
    assert gap.phases["phase"].tolist() == ["forward", "backward", "update"]  # one device aggregates nothing
    assert (gap.phases["difference_seconds"] / MS).tolist() == pytest.approx([0.5, 1.0, 0.4])
    written = report.write(gap, [reader.read(h200)], tmp_path / "out")
    assert "| backward | 1.00 | 2.00 | +1.00 |  |" in written[4].read_text()
    assert gap_of(h200, PLAIN, JAX).phases.empty  # one side has none


def test_the_interval_of_a_phases_difference_holds_both_sides_errors():
    width = bootstrap.Estimate(1.0, 0.7, 1.4, 5)
    fast, slow = (replace(each, phases={"forward": each_phase}) for each, each_phase in (
        (FAST, width), (SLOW, bootstrap.Estimate(2.0, 1.6, 2.3, 5))))
    row = explain(fast, slow).phases.iloc[0]
    assert (row["low"], row["high"]) == (pytest.approx(1 - np.hypot(0.4, 0.4)), pytest.approx(1 + np.hypot(0.3, 0.3)))


def test_small_parts_are_drawn_as_one_and_nothing_is_lost(h200):
    gap = gap_of(h200, PLAIN, PYTORCH)
    drawn = waterfall.drawn(gap)
    assert drawn["difference_seconds"].sum() == pytest.approx(gap.difference.value)
    assert drawn["part"].iloc[-2:].tolist() == ["1 smaller part", "residual"]
