"use strict";
// Text goes into the page as text only: nothing here, and nothing the policy allows, turns a string into markup.

const words = JSON.parse(document.getElementById("words").textContent);

function say(key, values) {
  const text = words[key];
  return values ? text.replace(/\{(\w+)\}/g, (_, name) => String(values[name])) : text;
}

/* make("td", {class: "num"}, child, "text", …): null children are left out. */
function make(name, attributes, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value !== null && value !== undefined && value !== false) element.setAttribute(key, value === true ? "" : value);
  }
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined) element.append(child);
  }
  return element;
}

function ev(text, name = "span") {
  return make(name, { class: "ev", translate: "no" }, String(text));
}

function count(n) {
  return Number.isInteger(n) ? n.toLocaleString("en-US") : String(n);
}

function seconds(s) {
  if (typeof s !== "number") return String(s);
  for (const [unit, name] of [[1, "s"], [1e-3, "ms"], [1e-6, "µs"]]) {
    if (s >= unit) return `${Number((s / unit).toPrecision(4))} ${name}`;
  }
  return `${Number((s * 1e6).toPrecision(3))} µs`;
}

function chip(status) {
  const marks = { ok: "✓", failed: "✕", known: "◆", blocked: "■", skipped: "○" };
  return make("span", { class: `chip ${status}` }, make("span", { "aria-hidden": "true" }, marks[status]), ` ${say(`status.${status}`)}`);
}

function level(name) {
  return name ? make("code", { class: "level", translate: "no" }, name) : make("span", { class: "level none" }, say("levelNone"));
}

/* A table with a caption; heads are texts or [text] for numbers, rows are lists of cells or [cells, class];
   groups, if given, are [text, number of columns] of a line above the heads. */
function table(caption, heads, rows, groups = null) {
  const numeric = heads.map((head) => Array.isArray(head));
  const head = make("tr", null, heads.map((h) => make("th", { scope: "col", class: Array.isArray(h) ? "num" : null }, Array.isArray(h) ? h[0] : h)));
  const over = groups && make("tr", null, groups.map(([text, width]) => (text ? make("th", { scope: "colgroup", colspan: width, class: "group" }, text) : make("td", { colspan: width }))));
  const body = rows.map((row) => {
    const [cells, kind] = Array.isArray(row[0]) ? row : [row, null];
    return make("tr", { class: kind }, cells.map((cell, n) => make(n ? "td" : "th", { scope: n ? null : "row", class: numeric[n] ? "num" : null }, cell)));
  });
  const whole = make("table", null, make("caption", null, caption), make("thead", null, over, head), make("tbody", null, body));
  return make("div", { class: "scroll", role: "group", tabindex: "0", "aria-label": say("scrollTable") }, whole);
}

/* Pairs of name and value; a null value is told with its reason. */
function facts(pairs) {
  return make("dl", { class: "facts" }, pairs.map(([name, value]) => make("div", null, make("dt", null, name), make("dd", null, value))));
}
