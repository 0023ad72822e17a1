// What the reader does: theme, cells, filters, links. The address after «#» says where one is, so that it can be sent on.

const root = document.documentElement;

function startTheme() {
  const button = document.getElementById("theme"), states = ["auto", "light", "dark"];
  let state = "auto";
  try { state = states.includes(localStorage.getItem("parproof-theme")) ? localStorage.getItem("parproof-theme") : "auto"; } catch { /* a file without storage */ }
  function show() {
    if (state === "auto") root.removeAttribute("data-theme");
    else root.setAttribute("data-theme", state);
    button.textContent = say(`theme.${state}`);
  }
  button.addEventListener("click", () => {
    state = states[(states.indexOf(state) + 1) % states.length];
    try { localStorage.setItem("parproof-theme", state); } catch { /* as above */ }
    show();
  });
  button.hidden = false;
  show();
}

/* The records of a cell in a row below it; a second click, Escape or the button closes it and gives the focus back. */
function toggleCell(link) {
  const row = link.closest("tr"), open = row.nextElementSibling?.classList.contains("drill") ? row.nextElementSibling : null;
  const wasOpen = link.getAttribute("aria-expanded") === "true";
  if (open) {
    open.remove();
    row.querySelectorAll("[aria-expanded]").forEach((other) => other.setAttribute("aria-expanded", "false"));
  }
  if (wasOpen) return;
  const found = recordsOfCell(link.dataset.cell);
  const [group, number, column] = link.dataset.cell.split(".").map(Number);
  const claim = index.groups[group].rows[number], [lane, subject] = index.groups[group].columns[column];
  const title = say("cellTitle", { claim: claim || "–", subject: subject || "–", lane: lane || "–" });
  const close = make("button", { type: "button", class: "button" }, say("close"));
  const list = make("a", { href: `#${new URLSearchParams({ experiment: index.groups[group].id, claim, subject, lane })}` }, say("openList"));
  const head = make("div", { class: "drill-head" }, make("h4", null, title), list, close);
  const drill = make("tr", { class: "drill", id: `drill-${link.dataset.cell}` }, make("td", { colspan: row.children.length }, head, recordTable(title, found, { columns: ["record", "status", "test", "level"] })));
  const shut = () => { drill.remove(); link.setAttribute("aria-expanded", "false"); link.focus(); };
  close.addEventListener("click", shut);
  drill.addEventListener("keydown", (event) => { if (event.key === "Escape") shut(); });
  link.setAttribute("aria-expanded", "true");
  row.after(drill);
}

function startCells() {
  for (const link of document.querySelectorAll("a[data-cell]")) {
    link.setAttribute("role", "button");
    link.setAttribute("aria-expanded", "false");
    link.setAttribute("aria-controls", `drill-${link.dataset.cell}`);
    link.addEventListener("click", (event) => {
      if (event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      toggleCell(link);
      if (link.getAttribute("aria-expanded") === "true") history.replaceState(null, "", link.getAttribute("href"));
    });
    link.addEventListener("keydown", (event) => { if (event.key === " ") { event.preventDefault(); link.click(); } });
  }
}

const filters = ["q", "status", "experiment", "claim", "subject", "lane", "level"];
const chosen = {};

function fits(at) {
  const text = (chosen.q || "").toLowerCase();
  return (!chosen.status || about.status(at) === chosen.status) && (!chosen.experiment || about.experiment(at) === chosen.experiment)
    && (!chosen.claim || about.claims(at).includes(chosen.claim)) && (!chosen.subject || about.subject(at) === chosen.subject)
    && (!chosen.lane || about.lane(at) === chosen.lane) && (!chosen.level || (about.level(at) || "none") === chosen.level)
    && (!text || `${about.sequence(at)} ${about.test(at)} ${about.brief(at)}`.toLowerCase().includes(text));
}

function showList() {
  const all = index.rows.map((_, at) => at), found = all.filter(fits);
  const told = say("found", { n: count(found.length), total: count(all.length) });
  document.getElementById("result-count").textContent = told;
  const list = found.length ? recordTable(say("records"), found) : make("p", { class: "quiet" }, say("nothing"));
  document.getElementById("record-list").replaceChildren(list);
}

function choose(name, value) {
  chosen[name] = value;
  const told = Object.entries(chosen).filter(([, v]) => v);
  history.replaceState(null, "", told.length ? `#${new URLSearchParams(told)}` : "#records");
  showList();
}

function options(name) {
  const all = index.rows.map((_, at) => at);
  const values = { status: () => index.statuses, level: () => [...new Set(all.map((at) => about.level(at) || "none"))],
    experiment: () => [...new Set(all.map(about.experiment))].sort(), lane: () => [...new Set(all.map(about.lane))].sort(),
    subject: () => [...new Set(all.map(about.subject))].sort(), claim: () => [...new Set(all.flatMap(about.claims))].sort((a, b) => a.localeCompare(b, "en", { numeric: true })) };
  return values[name]().filter(Boolean);
}

function startFilters() {
  const form = document.getElementById("filters");
  const input = make("input", { type: "search", name: "q", autocomplete: "off", spellcheck: "false" });
  let waiting = 0;
  input.addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(() => choose("q", input.value.trim()), 120); });
  form.append(make("label", { class: "grow" }, say("filter.text"), input));
  for (const name of filters.slice(1)) {
    const short = (text) => (text.length > 40 ? `${text.slice(0, 40)}…` : text);
    const told = (value) => (name === "status" ? say(`status.${value}`) : value === "none" && name === "level" ? say("levelNone") : short(value));
    const select = make("select", { name }, make("option", { value: "" }, say("filter.any")), options(name).map((value) => make("option", { value }, told(value))));
    select.addEventListener("change", () => choose(name, select.value));
    form.append(make("label", null, say(`column.${name}`), select));
  }
  const reset = make("button", { type: "button", class: "button" }, say("filter.reset"));
  reset.addEventListener("click", () => { for (const name of filters) { chosen[name] = ""; form.elements[name].value = ""; } choose("q", ""); input.focus(); });
  form.append(reset);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.hidden = false;
}

function showLinked(sequence) {
  const place = document.getElementById("linked");
  const found = index.rows.map((_, at) => at).filter((at) => String(about.sequence(at)) === sequence);
  const title = make("h3", { tabindex: "-1" }, say("linked", { n: sequence.slice(0, 20) }));
  const close = make("button", { type: "button", class: "button" }, say("close"));
  close.addEventListener("click", () => { place.replaceChildren(); history.replaceState(null, "", "#records"); document.getElementById("records-h").focus(); });
  const shown = found.length ? recordTable(say("linked", { n: sequence }), found, { opened: true }) : make("p", null, say("linkedNone", { n: sequence.slice(0, 20) }));
  place.replaceChildren(make("div", { class: "linked" }, make("div", { class: "linked-head" }, title, close), shown));
  place.scrollIntoView({ behavior: "instant" });
  title.focus({ preventScroll: true });
}

/* #record=17, #cell=0.3.1, or filters; a name without «=» is an ordinary place in the page. */
function follow() {
  const hash = location.hash.slice(1);
  if (!hash.includes("=")) return;
  const told = new URLSearchParams(hash);
  if (told.has("record")) { showLinked(told.get("record")); return; }
  if (told.has("cell")) {
    const link = [...document.querySelectorAll("a[data-cell]")].find((other) => other.dataset.cell === told.get("cell"));
    if (link) { if (link.getAttribute("aria-expanded") !== "true") toggleCell(link); link.scrollIntoView({ behavior: "instant", block: "center" }); link.focus({ preventScroll: true }); }
    return;
  }
  const form = document.getElementById("filters");
  for (const name of filters) {
    chosen[name] = told.get(name) || "";
    form.elements[name].value = chosen[name];
  }
  showList();
  document.getElementById("records").scrollIntoView({ behavior: "instant" });
  document.getElementById("records-h").focus({ preventScroll: true });
}

/* The contents tell where one is; an observer costs nothing while nothing moves. */
function startContents() {
  const links = new Map([...document.querySelectorAll(".contents a")].map((link) => [link.getAttribute("href").slice(1), link]));
  const observer = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      for (const link of links.values()) link.removeAttribute("aria-current");
      links.get(entry.target.id).setAttribute("aria-current", "true");
    }
  }, { rootMargin: "-15% 0px -75% 0px" });
  for (const id of links.keys()) observer.observe(document.getElementById(id));
}

startTheme();
startCells();
startFilters();
showList();
startContents();
follow();
window.addEventListener("hashchange", follow);
performance.mark("parproof-ready");
