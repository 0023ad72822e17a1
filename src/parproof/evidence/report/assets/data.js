// The index is small and parsed at once; details come in chunks, each parsed when one of its records is opened.

const index = JSON.parse(document.getElementById("index").textContent);
const [SEQ, FILE, NAME, STATUS, GROUP, ROWS, COLUMN, LEVEL, BRIEF, TEST, ATTEMPT] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10];
const byTest = new Map();
index.rows.forEach((told, at) => {
  if (!byTest.has(told[TEST])) byTest.set(told[TEST], []);
  byTest.get(told[TEST]).push(at);
});
const chunks = new Map();
let shared = null;

/* What record number `at` of the index is called. */
const about = {
  sequence: (at) => index.rows[at][SEQ],
  file: (at) => index.files[index.rows[at][FILE]],
  name: (at) => index.rows[at][NAME] || about.file(at),
  test: (at) => `${index.files[index.rows[at][FILE]]}::${index.rows[at][NAME]}`,
  status: (at) => index.statuses[index.rows[at][STATUS]],
  experiment: (at) => index.groups[index.rows[at][GROUP]].id,
  rowNumbers: (at) => [index.rows[at][ROWS]].flat(),
  claims: (at) => about.rowNumbers(at).map((row) => index.groups[index.rows[at][GROUP]].rows[row]),
  lane: (at) => index.groups[index.rows[at][GROUP]].columns[index.rows[at][COLUMN]][0],
  subject: (at) => index.groups[index.rows[at][GROUP]].columns[index.rows[at][COLUMN]][1],
  level: (at) => index.levels[index.rows[at][LEVEL]],
  attempt: (at) => index.rows[at][ATTEMPT],
  attempts: (at) => byTest.get(index.rows[at][TEST]),
  brief: (at) => index.briefs[index.rows[at][BRIEF]],
};

function whole(value) {
  if (value === null || typeof value !== "object") return value;
  if (Array.isArray(value)) return value.map(whole);
  if ("\0" in value) return shared[value["\0"]];
  return Object.fromEntries(Object.entries(value).map(([name, item]) => [name, whole(item)]));
}

/* The detail of a record, or null where the page holds none. */
function detailOf(at) {
  if (at >= index.numDetails) return null;
  const number = Math.floor(at / index.perChunk);
  if (!chunks.has(number)) chunks.set(number, JSON.parse(document.getElementById(`chunk-${number}`).textContent));
  if (shared === null) shared = JSON.parse(document.getElementById("shared").textContent);
  return whole(chunks.get(number)[at % index.perChunk]);
}

/* All attempts of its tests: the worst counts, wherever it stands. */
function recordsOfCell(name) {
  const [group, row, column] = name.split(".").map(Number);
  const tests = new Set();
  index.rows.forEach((told, at) => {
    if (told[GROUP] === group && told[COLUMN] === column && about.rowNumbers(at).includes(row)) tests.add(told[TEST]);
  });
  return [...tests].flatMap((test) => byTest.get(test)).sort((a, b) => a - b);
}
