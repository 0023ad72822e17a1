// One record in full. Built when it is opened, and only then.

function part(title, kind, ...children) {
  return make("section", { class: kind }, make("h4", null, title), children);
}

/* A value, or the reason why there is none. */
function valueOr(detail, path, value, show = ev) {
  if (value !== null && value !== undefined) return show(value);
  const why = detail.not_collected[path];
  return make("span", { class: "missing" }, say("blank"), why ? [": ", ev(why)] : null);
}

/* Rows with the same plain columns, or null where it is no such list. */
function sameColumns(list) {
  const plain = (row) => row !== null && typeof row === "object" && !Array.isArray(row) && Object.values(row).every((x) => x === null || typeof x !== "object");
  if (list.length < 2 || !list.every(plain)) return null;
  const names = Object.keys(list[0]);
  return list.every((row) => Object.keys(row).join() === names.join()) ? names : null;
}

function tree(value) {
  if (value === null || typeof value !== "object") return ev(typeof value === "number" ? count(value) : value);
  if (Array.isArray(value)) {
    if (value.every((item) => item === null || typeof item !== "object")) return ev(`[${value.map((item) => (typeof item === "number" ? count(item) : item)).join(", ")}]`);
    const names = sameColumns(value);
    if (names) return table(say("part.measurements"), names.map((name) => [name]), value.map((row) => names.map((name) => ev(count(row[name])))));
    return make("ul", { class: "json" }, value.map((item, n) => make("li", null, make("span", { class: "key" }, `${n}:`), tree(item))));
  }
  const entries = Object.entries(value);
  if (!entries.length) return make("span", { class: "missing" }, "{}");
  return make("ul", { class: "json" }, entries.map(([name, item]) => make("li", null, make("span", { class: "key ev", translate: "no" }, `${name}:`), tree(item))));
}

function identity(detail) {
  const told = detail.identity;
  const subject = told.subject && [ev(told.subject.name), " ", ev(told.subject.address, "code")];
  const field = (name, show) => [say(`field.${name}`), valueOr(detail, `identity.${name}`, told[name], show)];
  return part(say("part.identity"), null, facts([
    [say("column.experiment"), valueOr(detail, "identity.semantic_id", told.semantic_id)],
    [say("field.claims"), ev(told.claims.join(", ") || "–")],
    [say("field.tiers"), ev(told.tiers.join(", ") || "–")],
    [say("column.lane"), valueOr(detail, "identity.lane", told.lane)],
    [say("column.subject"), subject || valueOr(detail, "identity.subject", null)],
    field("page"), field("strategy"),
    [say("field.workload"), valueOr(detail, "identity.workload_id", told.workload_id)],
    [say("field.run_label"), told.run_label ? ev(told.run_label) : "–"],
  ]), Object.keys(told.workload).length ? [make("h5", null, say("part.workload")), tree(told.workload)] : null,
  Object.keys(told.parameters).length ? [make("h5", null, say("part.parameters")), tree(told.parameters)] : null);
}

function outcome(detail) {
  const end = detail.conclusion, found = [];
  if (end.failure) {
    const rank = end.failure.rank === null ? "–" : ev(end.failure.rank);
    found.push(part(say("part.failure"), "full failure", facts([
      [say("field.type"), ev(end.failure.type)], [say("field.phase"), ev(end.failure.phase)], [say("field.rank"), rank],
      [say("field.known"), end.expected_nonconformance ? ev(end.expected_nonconformance) : say("no")],
    ]), ev(end.failure.message, "pre")));
  }
  if (end.skip) {
    found.push(part(say("part.skip"), "full skip", facts([
      [say("skip.requirement"), end.skip.requirement ? ev(end.skip.requirement) : say("skip.notSaid")], [say("skip.found"), ev(end.skip.found || "–")], [say("how"), ev(end.skip.how || "–")], [say("skip.reason"), ev(end.skip.reason)],
    ])));
  }
  const level_part = part(say("part.level"), null, make("p", null, level(end.evidence_level), " ", ev(end.level_reason)), facts([
    [say("field.correctness"), ev(end.correctness)],
    [say("field.decision"), [ev(end.decision), ": ", ev(end.decision_reason)]],
    [say("field.fallback"), valueOr(detail, "conclusion.fallback", end.fallback)],
  ]));
  const limits = part(say("part.notShown"), null, make("ul", null, end.not_shown.map((line) => make("li", null, ev(line)))));
  return [found, [level_part, limits]];
}

/* Side by side, the verdict first; an amount that differs is marked where it stands. */
function compared(told) {
  const amounts = ["calls", "bytes_in", "bytes_out"].map((name) => [say(`ledger.${name}`)]);
  const heads = [say("verdict"), say("ledger.op"), say("ledger.phase"), say("ledger.dtype"), [say("ledger.group")], ...amounts, ...amounts];
  const marks = { differs: "✕", agrees: "✓", allowed: "○" };
  const rows = told.compared.map((line) => {
    if (!Array.isArray(line)) return [ev(line)];
    const [op, size, dtype, phase, predicted, measured, agrees] = line;
    const word = !agrees ? "differs" : predicted ? "agrees" : "allowed";
    const other = (n) => !agrees && (!predicted || predicted[n] !== measured[n]);
    const seen = measured.map((amount, n) => make(other(n) ? "strong" : "span", { class: other(n) ? "other" : null }, count(amount), other(n) ? " ≠" : null));
    const verdict = make("span", { class: "verdict-word" }, `${marks[word]} ${say(`compared.${word}`)}`);
    return [[verdict, ev(op, "code"), ev(phase || "–"), ev(dtype || "–"), size ? count(size) : "–", ...(predicted ? predicted.map(count) : ["–", "–", "–"]), ...seen], word];
  });
  const within = told.predicted.within.length ? make("p", { class: "quiet" }, say("compared.within", { phases: told.predicted.within.join(", ") })) : null;
  return [table(say("compared.title", { rank: told.predicted.rank }), heads, rows, [["", 5], [say("predicted"), 3], [say("measured"), 3]]), within];
}

function traffic(detail) {
  const told = detail.communication;
  const field = (name, show) => [say(`field.${name}`), valueOr(detail, `communication.${name}`, told[name], show)];
  const list = [field("backend"), field("launcher"), [say("field.num_runs"), count(told.num_runs)],
    [say("field.complete"), valueOr(detail, "communication.ledger_complete", told.ledger_complete, (yes) => say(yes ? "yes" : "no"))],
    field("wire_bytes", (bytes) => ev(bytes.map(count).join(", "))),
    field("wire_model", (model) => [ev(model.sent_bytes.map(count).join(", ")), " ", ev(model.model)]), field("sync_frequency"),
    [say("predicted"), told.compared ? say("yes") : valueOr(detail, "communication.predicted", null)]];
  const names = ["phase", "op", "dtype", "group", "control", "calls", "bytes_in", "bytes_out", "ranks"];
  const numeric = new Set(["group", "calls", "bytes_in", "bytes_out"]);
  let ledger = valueOr(detail, "communication.ledger", null);
  if (told.ledger && !told.ledger.length) ledger = make("p", { class: "quiet" }, say("ledger.empty"));
  if (told.ledger && told.ledger.length) {
    const rows = told.ledger.map((line) => (Array.isArray(line)
      ? [ev(line[0] || "–"), ev(line[1], "code"), ev(line[2]), count(line[3]), line[4] ? say("yes") : say("no"), count(line[5]), count(line[6]), count(line[7]), ev(line[8].join(", "))]
      : [ev(line)]));
    ledger = table(say("ledger.title"), names.map((n) => (numeric.has(n) ? [say(`ledger.${n}`)] : say(`ledger.${n}`))), rows);
  }
  return part(say("part.traffic"), "full", facts(list), told.compared ? compared(told) : null, told.ledger ? ledger : null);
}

function times(detail) {
  const told = detail.time, names = ["compute_s", "communication_s", "exposed_s"];
  return part(say("part.time"), null, facts([[say("field.test_s"), ev(seconds(told.test_s))], ...names.map((n) => [say(`field.${n}`), valueOr(detail, `time.${n}`, told[n], (s) => ev(seconds(s)))])]));
}

function sampled(detail) {
  const told = detail.time.measured;
  if (!told) return null;
  const rows = told.map((m) => (typeof m === "string" ? [ev(m)] : [ev(m.name), ev(seconds(m.median_s)), ev(seconds(m.p95_s)), count(m.repeats), count(m.warmup)]));
  const heads = [say("timing.name"), [say("timing.median")], [say("timing.p95")], [say("timing.repeats")], [say("field.warmup")]];
  const samples = make("details", null, make("summary", null, say("timing.samples")), told.filter((m) => typeof m !== "string").map((m) => [make("h5", null, ev(m.name)), tree(m.samples_s)]));
  return part(say("timing.title"), "full", table(say("timing.title"), heads, rows), samples);
}

function topology(detail) {
  const told = detail.topology;
  const list = ["scope", "world_size", "accelerator", "links"].map((n) => [say(`field.${n}`), valueOr(detail, `topology.${n}`, told[n], tree)]);
  const heads = [[say("topology.rank")], [say("topology.local")], say("topology.host"), say("topology.hostname"), say("topology.device"), [say("topology.process")]];
  const ranks = told.ranks && table(say("topology.title"), heads, told.ranks.map((rank) => (Array.isArray(rank) ? rank.map((x) => ev(x)) : [ev(rank)])));
  return part(say("part.topology"), null, facts(list), ranks);
}

function runs(detail) {
  const told = detail.observation;
  if (!told) return null;
  const heads = [say("field.launcher"), say("field.backend"), say("field.hosts"), [say("field.world_size")], [say("field.reports")], [say("ledger.calls")], say("field.problems")];
  const rows = told.runs.filter((run) => typeof run === "object").map((run) => [ev(run.launcher), ev(run.backend), ev(run.host_kind), count(run.world_size),
    count(run.num_reports ?? "–"), count(run.calls_seen ?? "–"), run.problems ? tree(run.problems) : "–"]);
  return part(say("part.runs"), "full", rows.length ? table(say("part.runs"), heads, rows) : null,
    facts([[say("field.model"), ev(told.model ?? "–")], [say("field.traces"), told.traces.length ? tree(told.traces) : "–"]]));
}

function load(detail) {
  const names = ["per_rank", "max_over_mean", "overflow", "idle_ratio"];
  return part(say("part.load"), null, facts(names.map((n) => [say(`field.${n}`), valueOr(detail, `load.${n}`, detail.load[n], tree)])));
}

/* Where the record was made, and how the other attempts of its test ended. */
function provenance(detail, at) {
  const told = detail.provenance, origin = detail.origin, all = about.attempts(at);
  const other = (one) => make("li", { value: about.attempt(one) }, chip(about.status(one)), " ", make("a", { href: `#record=${about.sequence(one)}` }, say("linked", { n: about.sequence(one) })));
  const list = [[say("field.attempt"), all.length > 1 ? [say("attemptOf", { n: about.attempt(at), total: all.length }), make("ol", null, all.slice(0, 50).map(other)), all.length > 50 ? "…" : null] : ev(about.attempt(at))]];
  if (origin) {
    list.push([say("field.shard"), ev(origin.run_id, "code")], [say("field.sequence"), ev(origin.sequence)], [say("field.digest"), ev(origin.digest, "code")]);
    if (origin.attempt) list.push([say("field.attemptThere"), ev(origin.attempt)]);
  }
  for (const name of ["worker", "written", "source", "environment"]) list.push([say(`field.${name}`), ev(told[name], name === "written" ? "span" : "code")]);
  return part(say("part.provenance"), "provenance", facts(list));
}

/* Everything about record number `at` of the index. */
function detailView(at) {
  const detail = detailOf(at);
  const link = make("a", { href: `#record=${about.sequence(at)}` }, say("link"));
  const head = make("div", { class: "detail-head" }, chip(about.status(at)), level(about.level(at)), ev(about.test(at), "code"), link);
  if (detail === null) return make("div", null, head, make("p", { class: "panel warn" }, say("noDetail")));
  const measured = Object.keys(detail.measurements).length ? part(say("part.measurements"), "full", tree(detail.measurements)) : null;
  const [told, why] = outcome(detail);
  const missing = part(say("part.missing"), "full", make("details", null, make("summary", null, say("missing.count", { n: Object.keys(detail.not_collected).length })),
    facts(Object.entries(detail.not_collected).map(([name, why]) => [ev(name, "code"), ev(why)]))));
  return make("div", null, head, make("div", { class: "detail" }, told, make("div", { class: "detail-columns" }, why, identity(detail), provenance(detail, at), topology(detail), load(detail), times(detail)), traffic(detail), sampled(detail), measured, runs(detail), missing));
}
