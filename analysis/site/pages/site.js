// Makes the pages' tables sortable and filterable (Tabulator) and draws their figures (Plotly). Without it the tables stay as they are.
"use strict";

const FEW = 14; // distinct values from which a filter is a list to choose from and not a field to type into
const PAGE = 50;
const GLANCE = 5; // rows that need no filter
const NARROW = 640; // pixels of a screen that has no room for Plotly's buttons
const PLAIN = /^-?\d[\d,]*(\.\d+)?$/; // a number that needs no data-value
const ENTRY = 44, LETTER = 7, LINE = 20; // pixels of a legend: an entry's marker, a letter, a line

function readCell(cell) {
  const link = cell.querySelector("a");
  const text = cell.textContent.trim();
  const value = cell.dataset.value ?? (PLAIN.test(text) ? text.replaceAll(",", "") : null);
  return { text, href: link && link.getAttribute("href"), value: value === null ? null : Number(value) };
}

function compareCells(a, b) {
  if (a.value !== null && b.value !== null) return a.value - b.value;
  if (a.value !== null || b.value !== null) return a.value !== null ? -1 : 1;
  return a.text.localeCompare(b.text, undefined, { numeric: true });
}

function showCell(cell) {
  const { text, href } = cell.getValue();
  if (!href) return document.createTextNode(text);
  const link = document.createElement("a");
  link.href = href;
  link.textContent = text;
  return link;
}

// Tabulator takes strings for HTML, and records hold what workers say: it gets nodes and escaped text.
function element(name, text) {
  const made = document.createElement(name);
  made.textContent = text;
  return made;
}

function describeColumn(title, number, rows) {
  const column = {
    title, field: "c" + number, formatter: showCell, sorter: compareCells, variableHeight: true,
    titleFormatter: () => document.createTextNode(title), headerTooltip: () => element("span", title),
  };
  if (rows.length <= GLANCE) return column;
  const texts = [...new Set(rows.map((row) => row["c" + number].text))];
  const chosen = texts.length <= FEW && texts.length > 1;
  return {
    ...column, headerFilter: chosen ? "list" : "input",
    headerFilterPlaceholder: chosen ? "any" : "filter",
    headerFilterParams: chosen ? { values: texts.sort((a, b) => a.localeCompare(b, undefined, { numeric: true })), clearable: true, itemFormatter: (label) => element("span", label) } : {},
    headerFilterFunc: (wanted, cell) => (chosen ? cell.text === wanted : cell.text.toLowerCase().includes(String(wanted).toLowerCase())),
  };
}

function enhanceTable(table) {
  const titles = [...table.tHead.rows[0].cells].map((cell) => cell.textContent.trim());
  const rows = [...table.tBodies[0].rows].map((row, id) =>
    Object.fromEntries([["id", id], ...[...row.cells].map((cell, number) => ["c" + number, readCell(cell)])]));
  if (!rows.length) return;
  const place = document.createElement("div");
  const caption = table.caption ? table.caption.textContent.trim() : "";
  const pages = document.createElement("div"); // outside of the table, whose role allows rows only
  pages.className = "pages";
  table.replaceWith(place, pages);
  const made = new Tabulator(place, {
    data: rows, layout: "fitDataFill", columns: titles.map((title, number) => describeColumn(title, number, rows)),
    columnDefaults: { maxInitialWidth: 420 },
    ...(rows.length > PAGE ? { pagination: true, paginationElement: pages, paginationSize: PAGE, paginationButtonCount: 3 } : {}),
  });
  made.on("tableBuilt", () => {
    place.setAttribute("aria-label", caption);
    // The part that scrolls takes the focus, and so it has to have the role of the part within it.
    place.querySelector(".tabulator-tableholder").setAttribute("role", "rowgroup");
    place.querySelector(".tabulator-table").setAttribute("role", "none");
    nameFilters(place);
    if (ALONE) keepFilters(made, titles);
    sortByKeyboard(place);
  });
}

// The address keeps the filters of a page's only table.
function keepFilters(table, titles) {
  for (const [title, value] of new URLSearchParams(window.location.hash.slice(1))) {
    const number = titles.indexOf(title);
    if (number >= 0 && value) table.setHeaderFilterValue("c" + number, value);
  }
  table.on("dataFiltered", () => {
    const kept = table.getHeaderFilters().map(({ field, value }) => [titles[field.slice(1)], value]);
    window.history.replaceState(null, "", "#" + new URLSearchParams(kept));
  });
}

function nameFilters(place) {
  for (const column of place.querySelectorAll(".tabulator-col")) {
    const title = column.querySelector(".tabulator-col-title").textContent;
    column.querySelectorAll("input").forEach((input) => input.setAttribute("aria-label", `Filter by ${title}`));
  }
}

function sortByKeyboard(place) {
  for (const heading of place.querySelectorAll(".tabulator-col.tabulator-sortable .tabulator-col-content")) {
    heading.tabIndex = 0;
    heading.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && event.target === heading) heading.click();
    });
  }
}

function theme() {
  const page = getComputedStyle(document.documentElement);
  const [ink, grid, paper] = ["--ink", "--grid", "--paper"].map((name) => page.getPropertyValue(name).trim());
  const axis = { gridcolor: grid, linecolor: grid, zerolinecolor: grid, automargin: true };
  return {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { color: ink, family: "system-ui, sans-serif", size: 12 },
    hoverlabel: { bgcolor: paper, font: { color: ink } }, template: { layout: { xaxis: axis, yaxis: axis } },
    legend: { orientation: "h", x: 0, xref: "paper", y: 0, yref: "container", yanchor: "bottom" },
    modebar: { bgcolor: "rgba(0,0,0,0)", color: grid, activecolor: ink },
    margin: { t: 40, r: 16, l: 8, b: 90 },
  };
}

function legendHeight(data, width) {
  const names = new Set(data.map((trace) => trace.name));
  const widest = ENTRY + LETTER * Math.max(...[...names].map((name) => name.length));
  return LINE * Math.ceil(names.size / Math.max(1, Math.floor(width / widest)));
}

function drawFigure(figure) {
  const { data, layout } = JSON.parse(figure.querySelector("script").textContent);
  const place = figure.querySelector("div");
  const colours = theme();
  const legend = legendHeight(data, place.clientWidth);
  layout.height += legend - LINE;
  colours.margin.b += legend - LINE;
  for (const menu of layout.updatemenus || []) {
    menu.bgcolor = colours.hoverlabel.bgcolor;
    menu.font = colours.font;
  }
  Plotly.react(place, data, { ...colours, ...layout }, { responsive: true, displaylogo: false, displayModeBar: window.innerWidth > NARROW }).then(() => {
    place.removeAllListeners("plotly_click");
    place.on("plotly_click", (event) => {
      if (event.points[0].customdata) window.location.href = event.points[0].customdata;
    });
  });
}

function drawFigures() {
  document.querySelectorAll("figure.plot").forEach(drawFigure);
}

// The leaderboard: one board is shown, that of the filters, which the address keeps.
function chooseBoard(form) {
  const boards = [...document.querySelectorAll(".board")];
  const filters = [...form.elements];
  const wanted = new URLSearchParams(window.location.hash.slice(1));
  for (const filter of filters) {
    if ([...filter.options].some((option) => option.value === wanted.get(filter.name))) filter.value = wanted.get(filter.name);
  }
  const show = () => {
    let left = boards;
    for (const filter of filters.slice(0, -1)) {
      const known = new Set(left.map((board) => board.dataset[filter.name]));
      for (const option of filter.options) option.hidden = option.disabled = !known.has(option.value);
      if (!known.has(filter.value)) filter.value = left[0].dataset[filter.name];
      left = left.filter((board) => board.dataset[filter.name] === filter.value);
    }
    const network = filters.at(-1);
    const rows = [...left[0].querySelectorAll("tr[data-network]")];
    const known = new Set(["all", ...rows.map((row) => row.dataset.network)]);
    for (const option of network.options) option.hidden = option.disabled = !known.has(option.value);
    if (!known.has(network.value)) network.value = "all";
    for (const board of boards) board.hidden = board !== left[0];
    for (const row of rows) row.hidden = network.value !== "all" && row.dataset.network !== network.value;
  };
  form.addEventListener("change", () => {
    show();
    window.history.replaceState(null, "", "#" + new URLSearchParams(filters.map((filter) => [filter.name, filter.value])));
  });
  form.addEventListener("submit", (event) => event.preventDefault());
  form.hidden = false;
  show();
}

const SHOWN = 60; // pages that a search lists

function search(list) {
  const wanted = new URLSearchParams(window.location.search).get("q") || "";
  const words = wanted.toLowerCase().split(/\s+/).filter(Boolean);
  document.getElementById("q").value = wanted;
  if (!words.length) return;
  const found = [];
  for (const page of PAGES) {
    const title = page.title.toLowerCase();
    const text = title + " " + page.href.toLowerCase() + " " + page.words;
    if (!words.every((word) => text.includes(word))) continue;
    const depth = page.href.split("/").length;
    found.push([words.filter((word) => title.includes(word)).length - depth / 10, page]);
  }
  found.sort((a, b) => b[0] - a[0]);
  for (const [, page] of found.slice(0, SHOWN)) {
    const item = document.createElement("li");
    const link = element("a", page.title);
    link.href = page.href;
    item.append(link, element("p", `${page.href} · ${page.lead}`));
    list.append(item);
  }
  const more = found.length > SHOWN ? `; the first ${SHOWN} are shown` : "";
  document.getElementById("count").textContent = `${found.length} pages have the words “${wanted}”${more}.`;
}

if (document.querySelector("form.filters")) chooseBoard(document.querySelector("form.filters"));
if (document.getElementById("results") && window.PAGES !== undefined) search(document.getElementById("results"));
const ALONE = document.querySelectorAll("table.grid").length === 1;
document.querySelectorAll("table.grid").forEach(enhanceTable);
if (window.Plotly) {
  drawFigures();
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawFigures);
}
