// Tables of records: the whole list, the records of a cell, a linked record. Rows are made a page at a time.

const PAGE = 50;
const allColumns = ["record", "status", "test", "claim", "subject", "level"];
const order = {
  record: (at) => about.sequence(at),
  status: (at) => index.rows[at][STATUS],
  test: about.test,
  claim: (at) => `${about.experiment(at)} ${about.claims(at).map((claim) => claim.padStart(5)).join()}`,
  subject: (at) => `${about.subject(at)} ${about.lane(at)}`,
  level: (at) => index.rows[at][LEVEL],
};
let numTables = 0;

function opener(at, table_id) {
  const id = `${table_id}-d${at}`;
  const button = make("button", { type: "button", class: "open-record", "aria-expanded": "false", "aria-controls": id }, String(about.sequence(at)));
  button.addEventListener("click", () => toggle(button, at, id));
  return button;
}

/* The detail is a row of its own below the record, made on the first opening and thrown away on closing. */
function toggle(button, at, id) {
  const row = button.closest("tr"), next = row.nextElementSibling;
  const opened = button.getAttribute("aria-expanded") === "true";
  button.setAttribute("aria-expanded", String(!opened));
  if (opened && next && next.classList.contains("detail-row")) next.remove();
  if (!opened) row.after(make("tr", { class: "detail-row", id }, make("td", { colspan: row.children.length }, detailView(at))));
}

/* Said only where a test has several. */
function attemptOf(at) {
  const total = about.attempts(at).length;
  return total > 1 ? make("span", { class: "brief attempt" }, say("attemptOf", { n: about.attempt(at), total })) : null;
}

function recordRow(at, id, columns) {
  const brief = about.brief(at);
  const claims = about.claims(at).filter(Boolean).join(", ");
  const small = (text) => make("span", { class: "brief ev", translate: "no" }, text);
  const cells = {
    status: () => [chip(about.status(at))],
    test: () => [ev(about.name(at), "code"), small(about.file(at)), attemptOf(at), brief ? make("span", { class: "brief reason ev", translate: "no" }, brief) : null],
    claim: () => [about.experiment(at) ? ev(about.experiment(at)) : say("noExperiment"), small(claims || "–")],
    subject: () => [ev(about.subject(at) || "–"), small(about.lane(at) || "–")],
    level: () => [level(about.level(at))],
  };
  return make("tr", null, make("th", { scope: "row" }, opener(at, id)), columns.slice(1).map((name) => make("td", null, cells[name]())));
}

/* A sortable table of these records; `opened`: the first one's detail at once. */
function recordTable(caption, found, { opened = false, columns = allColumns } = {}) {
  const id = `records-${numTables++}`;
  let sorted = found, shown = 0;
  const body = make("tbody"), more = make("button", { type: "button", class: "button more" });
  const head = make("tr");
  function grow() {
    body.append(...sorted.slice(shown, shown + PAGE).map((at) => recordRow(at, id, columns)));
    shown = Math.min(sorted.length, shown + PAGE);
    more.hidden = shown >= sorted.length;
    more.textContent = say("more", { n: Math.min(PAGE, sorted.length - shown) });
  }
  function sortBy(column, header) {
    const down = header.getAttribute("aria-sort") === "ascending";
    for (const other of head.children) other.setAttribute("aria-sort", "none");
    header.setAttribute("aria-sort", down ? "descending" : "ascending");
    const key = order[column], sign = down ? -1 : 1;
    const keyed = found.map((at) => [key(at), at]);
    keyed.sort(([a, i], [b, j]) => (a < b ? -sign : a > b ? sign : i - j));
    sorted = keyed.map(([, at]) => at);
    shown = 0;
    body.replaceChildren();
    grow();
  }
  for (const column of columns) {
    const name = say(`column.${column}`);
    const header = make("th", { scope: "col", class: `c-${column}`, "aria-sort": column === "record" ? "ascending" : "none" });
    const button = make("button", { type: "button", class: "sort", title: say("sort", { name }) }, name);
    button.addEventListener("click", () => sortBy(column, header));
    header.append(button);
    head.append(header);
  }
  more.addEventListener("click", grow);
  grow();
  const whole_table = make("table", { class: "records", id }, make("caption", { class: "visually-hidden" }, caption), make("thead", null, head), body);
  if (opened && found.length) body.querySelector(".open-record").click();
  return make("div", null, whole_table, more);
}
