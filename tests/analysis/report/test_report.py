"""The report: one page that needs nothing else, whole Markdown, tables as CSV and plots, from one or several campaigns."""

import io
import re
from html.parser import HTMLParser

import pandas as pd
import pytest
from rich.console import Console

from analysis.display import memory, palette, ranking, style
from analysis.records import reader
from analysis.records.text import BadRecords
from analysis.report import plots, report, sections, tables
from analysis.trials import summary


@pytest.fixture(scope="module")
def written(smoke, tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    return report.write([smoke.write(folder / "smoke")], folder / "out"), folder / "out"


class Balance(HTMLParser):
    """Collects tags that were opened and never closed, or closed and never opened, and every identifier and address."""

    VOID = ("meta", "path", "use", "rect", "br", "link")

    def __init__(self, text):
        super().__init__()
        self.open, self.wrong, self.ids, self.addresses = [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.handle_startendtag(tag, attributes)
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        for name, value in attributes:
            self.ids += [value] if name == "id" else []
            self.addresses += [value] if name in ("src", "href", "xlink:href") else []

    def handle_endtag(self, tag):
        if tag not in self.VOID and (not self.open or self.open.pop() != tag):
            self.wrong.append(tag)


def test_every_path_that_is_returned_was_written(written):
    paths, out = written
    assert sorted(path.relative_to(out).as_posix() for path in paths) == [
        "plots/losses.png", "plots/losses.svg", "plots/peak_memory.png", "plots/peak_memory.svg", "plots/relative_speed.png",
        "plots/relative_speed.svg", "plots/step_time.png", "plots/step_time.svg", "report.html", "report.md", "tables/answer.csv",
        "tables/memory.csv", "tables/refused.csv", "tables/remarks.csv", "tables/times.csv",
    ]
    assert all(path.stat().st_size > 100 for path in paths)


def test_the_page_is_well_formed_and_needs_nothing_else(written):
    page = (written[1] / "report.html").read_text()
    found = Balance(page)
    assert (found.open, found.wrong) == ([], [])
    assert all(address.startswith("#") and address[1:] in found.ids for address in found.addresses)
    assert len(found.ids) == len(set(found.ids))
    assert not re.search(r"<script|@import|url\((?!#)", page)


def test_each_paragraph_of_the_markdown_ends_and_facts_are_a_table(written):
    page = (written[1] / "report.md").read_text()
    paragraphs = [line for line in page.splitlines() if line and not line.startswith(("#", "|"))]
    assert paragraphs and [line for line in paragraphs if not line.endswith((".", ".svg)"))] == []
    assert re.search(r"^\| processor \| Example CPU", page, re.MULTILINE)


def test_the_page_opens_with_the_answer(written):
    page = (written[1] / "report.html").read_text()
    order = ["14 trials: 12 ranked, 1 unsupported, 1 failed.", "as fast as", "<svg", "the processor has no bf16 instructions",
             "2 cores: the driver", "Every measured row", "bb5b10f0c0ff", "Example CPU @ 2.10GHz", "torch==2.13.0"]
    places = [page.index(text) for text in order]
    assert places == sorted(places)


def test_the_page_follows_the_readers_colours(written):
    page = (written[1] / "report.html").read_text()
    assert "prefers-color-scheme: dark" in page and "var(--ink)" in page[page.index("<svg"):]
    assert style.INK not in page[page.index("<svg"):]
    plot = (written[1] / "plots" / "losses.svg").read_text()
    assert style.INK in plot and not re.search(r' [dxy]="[^"]*\.\d{3}', plot)


def test_what_a_framework_said_cannot_become_markup(made, tmp_path):
    made.add_trial("jax", "alexnet_cifar", 128, status="unsupported", reason="<script>alert(1)</script> | x")
    report.write([made.write(tmp_path / "a")], tmp_path / "out", plots=False)
    assert "&lt;script&gt;" in (tmp_path / "out" / "report.html").read_text()
    assert r"\| x |" in (tmp_path / "out" / "report.md").read_text()


def test_the_tables_can_be_read_again(written):
    answer = pd.read_csv(written[1] / "tables" / "answer.csv")
    assert len(answer) == 8 and answer["verdict"].iloc[0].startswith("no difference seen")


def test_the_same_records_give_the_same_report(made, tmp_path):
    folder = made.write(tmp_path / "a")
    first, second = (report.write([folder], tmp_path / name) for name in ("one", "two"))
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]


def test_several_campaigns_are_sections_of_one_report(made, tmp_path):
    folders = [made.write(tmp_path / "a"), made.write(tmp_path / "b")]
    paths = report.write(folders, tmp_path / "out")
    assert len(paths) == len(set(paths))
    found = Balance((tmp_path / "out" / "report.html").read_text())
    assert (found.open, found.wrong) == ([], []) and len(found.ids) == len(set(found.ids))


def test_a_report_says_which_proof_its_rows_passed_and_what_it_sees(made, tmp_path):
    then = made.write(tmp_path / "then")
    made.prove_each_process()
    now = made.write(tmp_path / "now")
    pages = {}
    for name, folders in (("then", [then]), ("now", [now]), ("both", [then, now])):
        report.write(folders, tmp_path / f"report of {name}", plots=False)
        pages[name] = (tmp_path / f"report of {name}" / "report.md").read_text()
    said = {name: (sections.PROOFS[True] in page, sections.PROOFS[False] in page) for name, page in pages.items()}
    assert said == {"then": (False, True), "now": (True, False), "both": (True, True)}
    assert "What the proof of each row sees" in pages["now"] and "What the proof" not in pages["then"]


def test_a_note_explains_only_what_the_tables_hold(made, tmp_path):
    made.prove_each_process()

    def page(name):
        report.write([made.write(tmp_path / name)], tmp_path / f"{name} report", plots=False)
        text = (tmp_path / f"{name} report" / "report.md").read_text()
        return report.RISING in text, report.UNSEEN in text

    assert page("falling") == (False, False)
    made.processes_of("tensorflow-2.21.0-alexnet_cifar-128-fp32-stock")[0].update(proof_rate_error="inf")
    for row in made.windows_of("pytorch-2.13.0-alexnet_cifar-128-fp32-stock"):
        row["loss"] += row["window"]
    assert page("rising") == (True, True)


@pytest.mark.parametrize("statuses", ["none finished", "none verified", "one framework"])
def test_a_campaign_with_little_to_show_still_has_a_report(made, tmp_path, statuses):
    if statuses == "none finished":
        made.processes, made.windows = [], []
    if statuses == "none verified":
        for row in made.processes:
            row["check"] = ""
    if statuses == "one framework":
        made.meta["trials"].pop()
        made.processes, made.windows = made.processes_of(made.meta["trials"][0]["trial"]), made.windows_of(
            made.meta["trials"][0]["trial"])
    made.meta.update(finished=None, machine={}, git_commit=None, concerns=[], environments={})
    paths = report.write([made.write(tmp_path / "a")], tmp_path / "out")
    assert not (tmp_path / "out" / "plots" / "relative_speed.svg").exists()
    assert "not finished" in paths[-1].read_text()


def test_bad_records_are_named(tmp_path):
    with pytest.raises(BadRecords, match="no such file"):
        report.write([tmp_path], tmp_path / "out")


def test_a_process_that_failed_is_named_below_the_terminal_table(made, tmp_path):
    trial = made.processes[0]["trial"]
    row = made.processes_of(trial)[1]
    row.update(status="failed", reason="crashed: signal SIGKILL")
    made.windows = [each for each in made.windows if (each["trial"], each["process"]) != (trial, 1)]
    caption = report.terminal_table(reader.read(made.write(tmp_path / "made"))).caption
    count = len(made.processes_of(trial))
    assert f"alexnet_cifar, batch {trial.split('-')[3]}: 1 of {count} processes failed: crashed: signal SIGKILL" in caption


def test_a_campaign_that_is_not_finished_says_so_at_the_top(made, tmp_path):
    made.meta["finished"] = None
    lost = made.processes.pop()
    made.windows = [each for each in made.windows
                    if (each["trial"], each["process"]) != (lost["trial"], lost["process"])]
    folder = made.write(tmp_path / "made")
    planned = sum(trial["processes_planned"] for trial in made.meta["trials"])
    text = f"Not finished: {planned - 1} of {planned} processes have run."
    assert text in report.terminal_table(reader.read(folder)).caption
    report.write([folder], folder, plots=False)
    page = (folder / "report.md").read_text()
    assert page.index(text) < page.index("| network")


def memory_of(made, folder):
    """The table of memory, the note below it, and the plot's bars, titles and axes."""
    report.write([made.write(folder)], folder, plots=False)
    table = pd.read_csv(folder / "tables" / "memory.csv", dtype=str, keep_default_na=False).drop(columns=["framework", "network", "batch"])
    section = re.search(r"\n## Peak memory\n(.*?)\n## ", (folder / "report.md").read_text(), re.DOTALL)[1]
    note = "\n".join(line for line in section.splitlines() if line and not line.startswith("|"))
    figure = plots.peak_memory(summary.summarise(reader.read(folder)))
    (axes,) = figure.axes
    return table, note, [round(bar.get_height()) for bar in axes.patches], figure.get_suptitle().replace("\n", " "), axes.get_ylabel()


@pytest.mark.parametrize("held", [{}, {"pytorch": 600 * 2**20, "tensorflow": 900 * 2**20}])
def test_memory_on_a_gpu_compares_by_what_the_driver_charged_or_says_that_it_does_not_compare(made, tmp_path, held):
    made.put_on_a_gpu(**held)
    table, note, bars, title, axis = memory_of(made, tmp_path)
    counted = [str(round((350 * 2**20 + 20 * 85_098 + 40_000 * 128) / 2**20))] * 2
    if held:
        assert table.to_dict("list") == {"held on the GPU (MiB)": ["604", "904"], "counted by its allocator (MiB)": counted}
        assert (note, bars) == (memory.HELD_NOTE, [604, 904])
        assert (axis, "do not compare" in title) == ("held on the GPU (MiB)", False)
    else:
        assert table.to_dict("list") == {"peak memory (MiB)": counted}
        assert (note, bars) == (memory.COUNTED_NOTE, [int(each) for each in counted])
        assert (axis, "do not compare" in title) == ("counted by its allocator (MiB)", True)


def test_a_row_of_which_the_driver_told_nothing_is_named_and_has_no_bar_beside_others(made, tmp_path):
    made.put_on_a_gpu(tensorflow=900 * 2**20)
    table, note, bars, title, _ = memory_of(made, tmp_path)
    assert table["held on the GPU (MiB)"].tolist() == ["", "904"]
    assert note == f"{memory.HELD_NOTE} Rows without it: {memory.UNTOLD}."
    assert bars == [904]
    assert title.endswith(f"; not drawn: 1 of pytorch, {memory.UNTOLD}")


def test_memory_on_a_cpu_is_that_of_the_worker_and_the_plot_says_so(made, tmp_path):
    table, note, bars, title, axis = memory_of(made, tmp_path)
    assert (list(table), note, len(bars)) == (["peak memory (MiB)"], "", 2)
    assert (title, axis) == ("Peak resident memory of the worker", "resident memory (MiB)")
    # Beside a row on a GPU each panel names its own quantity.
    made.add_trial("pytorch", "alexnet_cifar", 128, device_kind="cuda", processes=1)
    made.processes[-1]["device_memory_bytes"] = 2**29
    rows = summary.summarise(reader.read(made.write(tmp_path / "both")))
    axes = plots.peak_memory(rows).axes
    assert sorted(each.get_ylabel() for each in axes) == ["held on the GPU (MiB)", "resident memory (MiB)"]
    assert list(tables.memory(rows))[-2:] == ["held on the GPU (MiB)", "peak memory (MiB)"]


def test_the_terminal_table_shows_every_trial_and_every_reason(smoke, tmp_path):
    console = Console(width=160, record=True, file=io.StringIO())
    console.print(report.terminal_table(reader.read(smoke.write(tmp_path / "smoke"))))
    text = console.export_text()
    assert "pytorch (ms)" in text and "no difference seen: " in text
    assert "tensorflow, lstm32, batch 64: failed: out_of_memory: OOM when allocating 2.6 GB" in text
    assert "1 device, cpu, 2 threads, stock tier" in text


def test_plots_draw_verified_rows_only(made, tmp_path):
    made.processes_of("tensorflow-2.21.0-alexnet_cifar-128-fp32-stock")[0]["check"] = ""
    campaign = reader.read(made.write(tmp_path))
    rows = summary.summarise(campaign)
    figure = plots.by_batch(rows, "step_seconds")
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["pytorch"]
    notes = [text.get_text() for text in plots.losses(rows, campaign.windows).axes[0].texts]
    assert notes == ["tensorflow: not verified"]


def test_a_bar_without_an_interval_has_no_caps(smoke, tmp_path):
    rows = summary.summarise(reader.read(smoke.write(tmp_path)))

    def ranges(table):
        return sum(len(container.lines[2][0].get_segments()) for axes in plots.by_batch(table, "step_seconds").axes
                   for container in axes.containers if hasattr(container, "has_yerr"))

    ranked = (rows["verified"] == "yes") & rows["step_seconds_low"].notna()
    assert ranges(rows) == ranked.sum() > 1
    one = rows.index[ranked][0]
    rows.loc[one, ["step_seconds_low", "step_seconds_high"]] = float("nan")
    assert ranges(rows) == ranked.sum() - 1


def test_plots_say_where_an_axis_is_logarithmic_and_where_dropout_moves_a_curve(smoke, tmp_path):
    campaign = reader.read(smoke.write(tmp_path))
    rows = summary.summarise(campaign)
    figure = plots.losses(rows, campaign.windows, {"fcn5"})
    assert "dropout draws masks of its own" in figure.get_suptitle().replace("\n", " ")
    assert "dropout" not in plots.losses(rows, campaign.windows).get_suptitle()
    panels = figure.axes
    assert [plots.DROPOUT in axes.get_title(loc="left") for axes in panels] == ["fcn5" in axes.get_title(loc="left") for axes in panels]
    assert sum("fcn5" in axes.get_title(loc="left") for axes in panels) == 1
    steep = rows.assign(**{f"step_seconds{end}": rows[f"step_seconds{end}"].where(rows["batch"] != 2048, 100.0) for end in ("", "_low", "_high")})
    for axes in [*panels, *plots.by_batch(steep, "step_seconds").axes]:
        for axis in (axes.xaxis, axes.yaxis):
            assert (axis.get_scale() == "log") == ("log scale" in axis.get_label().get_text())
    assert any(axes.get_yscale() == "log" for axes in plots.by_batch(steep, "step_seconds").axes)


def test_a_framework_keeps_its_colour_in_every_plot(smoke, tmp_path):
    campaign = reader.read(smoke.write(tmp_path))
    rows = summary.summarise(campaign)
    figures = [plots.by_batch(rows, "step_seconds"), plots.peak_memory(rows), plots.relative_speed(ranking.relative(campaign, rows)),
               plots.losses(rows, campaign.windows)]
    for figure in figures:
        legend = figure.legends[0]
        colours = dict(zip([text.get_text() for text in legend.get_texts()],
                           [line.get_color() for line in legend.get_lines()], strict=True))
        assert colours == {"pytorch": palette.FRAMEWORKS["pytorch"][0], "tensorflow": palette.FRAMEWORKS["tensorflow"][0]}

