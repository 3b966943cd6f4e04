// Draws what the server sends. Records are shown as text: nothing that they hold becomes markup.
"use strict";

const REDRAW_MS = 500, LONGEST_NOTES = 50;
const UNITS = [["s", 1], ["ms", 1e3], ["us", 1e6]];
const DASHES = { stock: "solid", compiled: "dash", tuned: "dot", uncompiled: "dashdot" };
const $ = id => document.getElementById(id);

let settings = { colours: {} };
let state = empty();
let chosen = "";   // the network that the reader chose; "" follows the campaign
let waiting = false;

function empty() {
  return { trials: new Map(), rows: new Map(), networks: new Map(), devices: new Map(), notes: [],
           done: 0, total: 0, first: 0, last: 0, title: "dlbench", now: "", ended: false,
           network: "" };
}

function number(value) { return typeof value === "string" ? NaN : value; }

function duration(seconds) {
  if (!(seconds >= 0)) return "";
  if (seconds >= 5400) return (seconds / 3600).toFixed(1) + " h";
  if (seconds >= 90) return Math.round(seconds / 60) + " min";
  const [unit, factor] = UNITS.find(([, each]) => seconds * each >= 1) || UNITS[2];
  return Number((seconds * factor).toPrecision(3)) + " " + unit;
}

function workload(line) {
  const several = line.devices > 1 ? ` x ${line.devices}` : "";
  return `${line.network}, batch ${line.batch}${several}`;
}

function label(line) { return `${line.framework} ${line.precision} ${line.tuning}`; }

function process(line) {
  const key = `${line.trial} ${line.process}`;
  if (!state.rows.has(key)) {
    state.rows.set(key, { trial: line.trial, process: line.process, steps: [], losses: [],
                          timed: [], phase: "", status: "", reason: "", check: "" });
  }
  return state.rows.get(key);
}

const hear = {
  reset() { state = empty(); },
  begin(line) { state.title = line.title; },
  end() { state.ended = true; state.now = ""; },
  note(line) { state.notes.unshift(line.text); state.notes.length = Math.min(state.notes.length, LONGEST_NOTES); },
  phase(line) {
    // The reference answers once for all processes of a network, before the first of them starts.
    if (line.phase !== "asking the reference") {
      process(line).phase = line.phase;
      state.first = state.first || line.time;
    }
    if (!state.trials.has(line.trial)) state.trials.set(line.trial, line);
    state.now = `${workload(line)}: ${label(line)}, process ${line.process}: ${line.phase}`;
  },
  window(line) {
    hear.phase(line);
    const row = process(line);
    row.steps.push(line.step);
    row.losses.push(number(line.loss));
    if (line.phase === "timing") row.timed.push(line.seconds);
    row.diverging = !Number.isFinite(line.loss);
    state.networks.set(workload(line), true);
    state.network = workload(line);
    for (const [device, now] of Object.entries(line.devices_now)) {
      if (!state.devices.has(device)) state.devices.set(device, []);
      state.devices.get(device).push(now);
    }
  },
  done(line) {
    Object.assign(process(line), { status: line.status, reason: line.reason, check: line.check });
    state.done = line.number;
    state.total = line.total;
  },
};

function listen() {
  const source = new EventSource("events");
  source.onmessage = message => {
    const line = JSON.parse(message.data);
    state.last = line.time || state.last;
    hear[line.event](line);
    if (line.event === "end") source.close();
    if (!waiting) { waiting = true; setTimeout(draw, REDRAW_MS); }
  };
  source.onerror = () => { $("state").textContent = "No connection; trying again"; };
}

function median(values) {
  const sorted = [...values].sort((a, b) => a - b), middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

function layout(x, y, more) {
  const style = getComputedStyle(document.documentElement);
  const line = style.getPropertyValue("--line"), text = style.getPropertyValue("--text");
  const axis = { gridcolor: line, zerolinecolor: line, automargin: true };
  return { paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { color: text },
           margin: { l: 60, r: 10, t: 10, b: 45 }, legend: { orientation: "h", y: 1.02, yanchor: "bottom" },
           xaxis: { ...axis, title: { text: x } }, yaxis: { ...axis, title: { text: y } }, ...more };
}

function plot(id, traces, settled) {
  $(id).hidden = !traces.some(trace => trace.x.length);
  if ($(id).hidden) return;
  Plotly.react(id, traces, settled, { responsive: true, displayModeBar: false });
}

function colour(trial) { return settings.colours[trial.framework] || "#555555"; }

function drawLosses(network) {
  const newest = new Map();
  for (const row of state.rows.values()) if (row.steps.length) newest.set(row.trial, row);
  const traces = [];
  for (const [name, row] of newest) {
    const trial = state.trials.get(name);
    if (!trial || workload(trial) !== network) continue;
    traces.push({ x: row.steps, y: row.losses, name: label(trial), mode: "lines+markers",
                  marker: { size: 4 }, line: { color: colour(trial), dash: DASHES[trial.tuning] } });
  }
  const shown = layout("step", "loss");
  Object.assign(shown.xaxis, { type: "log", dtick: 1 });
  plot("loss-plot", traces, shown);
}

function drawTimes(network) {
  const times = new Map();
  for (const row of state.rows.values()) {
    const trial = state.trials.get(row.trial);
    if (trial && workload(trial) === network && row.timed.length) {
      times.set(row.trial, [...(times.get(row.trial) || []), ...row.timed]);
    }
  }
  const names = [...times.keys()].sort((a, b) => median(times.get(b)) - median(times.get(a)));
  const of = each => state.trials.get(each);
  // Beside the bar, where no point lies on it.
  const said = each => `${label(of(each))}: ${duration(median(times.get(each)))}`;
  const bars = { type: "bar", orientation: "h", x: names.map(each => 1e3 * median(times.get(each))),
    y: names.map(said), marker: { color: names.map(each => colour(of(each))) }, name: "median" };
  const points = { type: "scatter", mode: "markers", name: "window",
    marker: { size: 5, color: getComputedStyle(document.documentElement).getPropertyValue("--text") },
    x: names.flatMap(each => times.get(each).map(value => 1e3 * value)),
    y: names.flatMap(each => times.get(each).map(() => said(each))) };
  const shown = layout("ms a step", "", { showlegend: false, bargap: 0.35 });
  shown.margin.l = 190;
  shown.height = Math.max(160, 90 + 34 * names.length);
  $("time-plot").style.height = `${shown.height}px`;
  plot("time-plot", [bars, points], shown);
}

function drawDevices() {
  $("devices").hidden = !state.devices.size;
  if (!state.devices.size) return;
  const series = (keys, factor) => [...state.devices].flatMap(([device, rows]) => keys.map(key => (
    { y: rows.map(row => row[key] === undefined ? null : row[key] * factor),
      x: rows.map((_, place) => place + 1), mode: "lines",
      name: keys.length > 1 ? `${device} ${key.includes("_rx_") ? "received" : "sent"}` : device })))
    .filter(trace => trace.y.some(value => value));
  const totals = link => [`${link}_rx_bytes_per_second`, `${link}_tx_bytes_per_second`];
  plot("power_watts", series(["power_watts"], 1), layout("window", "power, W"));
  plot("memory_used_bytes", series(["memory_used_bytes"], 2 ** -30), layout("window", "memory, GiB"));
  plot("pcie", series(totals("pcie"), 1e-9), layout("window", "PCIe, GB/s"));
  plot("nvlink", series(totals("nvlink"), 1e-9), layout("window", "NVLink, GB/s"));
}

function cell(row, text, kind) {
  const made = row.insertCell();
  made.textContent = text;
  if (kind) made.className = kind;
}

function drawProcesses() {
  const body = $("processes");
  body.replaceChildren();
  for (const row of [...state.rows.values()].reverse()) {
    const line = body.insertRow();
    const bad = row.diverging || (row.status && row.status !== "ok");
    cell(line, row.trial);
    cell(line, String(row.process), "number");
    cell(line, row.check, row.check === "same" ? "good" : row.check ? "bad" : "");
    cell(line, row.timed.length ? duration(median(row.timed)) : "", "number");
    cell(line, row.losses.length ? String(Number(row.losses.at(-1).toPrecision(4))) : "", "number");
    cell(line, row.status ? [row.status, row.reason].filter(Boolean).join(": ")
                          : row.diverging ? "diverging" : row.phase, bad ? "bad" : "");
  }
}

function drawState() {
  $("title").textContent = state.title;
  document.title = `${state.done}/${state.total || "?"} ${state.title}`;
  $("progress").max = state.total || 1;
  $("progress").value = state.done;
  $("now").textContent = state.now;
  const spent = state.last - state.first;
  const left = state.done ? spent / state.done * (state.total - state.done) : NaN;
  const said = state.total ? `${state.done} of ${state.total} processes` : "Getting ready";
  $("state").textContent = state.ended ? `Finished: ${said}`
    : said + (left > 0 && state.first ? `, about ${duration(left)} left` : "");
  const notes = $("notes");
  notes.replaceChildren(...(state.notes.length ? state.notes : ["None yet."]).map(text => {
    const item = document.createElement("li");
    item.textContent = text;
    return item;
  }));
}

function drawNetworks() {
  const select = $("network");
  if (select.options.length !== state.networks.size + 1) {
    const names = ["", ...state.networks.keys()];
    select.replaceChildren(...names.map(name => new Option(name || "the one that runs", name)));
    select.value = chosen;
  }
}

function draw() {
  waiting = false;
  const network = chosen || state.network;
  drawState();
  drawNetworks();
  drawLosses(network);
  drawTimes(network);
  drawDevices();
  drawProcesses();
}

addEventListener("DOMContentLoaded", async () => {
  $("network").onchange = event => { chosen = event.target.value; draw(); };
  matchMedia("(prefers-color-scheme: dark)").onchange = draw;
  settings = await (await fetch("settings.json")).json();
  draw();
  listen();
});
