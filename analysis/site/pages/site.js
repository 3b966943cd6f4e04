// Makes the pages' tables sortable and filterable (Tabulator) and draws their figures (Plotly). Without it the tables stay as they are.
"use strict";

const FEW = 14; // distinct values from which a filter is a list to choose from and not a field to type into
const PAGE = 50;
const GLANCE = 5; // rows that need no filter
const NARROW = 640; // pixels of a screen that has no room for Plotly's buttons, nor for many columns
const ENTRY = 44, LETTER = 7, LINE = 20; // pixels of a legend: an entry's marker, a letter, a line

function readCell(cell) {
  const link = cell.querySelector("a");
  const value = cell.dataset.value;
  return { text: cell.textContent.trim(), href: link && link.getAttribute("href"), value: value === undefined ? null : Number(value) };
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

function showHidden(columns) {
  const list = document.createElement("dl");
  for (const { title, value } of columns) {
    const shown = document.createElement("dd");
    shown.append(value);
    list.append(element("dt", title), shown);
  }
  return list;
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
  table.replaceWith(place);
  const made = new Tabulator(place, {
    data: rows, layout: "fitDataFill", responsiveLayout: window.innerWidth < NARROW ? "collapse" : false, columns: titles.map((title, number) => describeColumn(title, number, rows)),
    columnDefaults: { maxInitialWidth: 420 }, responsiveLayoutCollapseFormatter: showHidden,
    ...(rows.length > PAGE ? { pagination: true, paginationSize: PAGE, paginationButtonCount: 3 } : {}),
  });
  made.on("tableBuilt", () => sortByKeyboard(place));
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

document.querySelectorAll("table.grid").forEach(enhanceTable);
if (window.Plotly) {
  drawFigures();
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawFigures);
}
