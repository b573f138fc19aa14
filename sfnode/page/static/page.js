"use strict";
// Shows the sections of a node's page: those that the node sends one after the other, or those that lie in the file.

const view = {};
const seen = { neighbours: new Map(), drawn: {} };
const SILENT_STEPS = 64;
const GONE_S = 300;
const LEVEL_WARNING = 30, LEVEL_ERROR = 40;

// --- where the node stands

function showStage() {
  const { status, run, verified } = view;
  const steps = run.steps, step = verified && !status ? lastStep() : status ? status.step : 0;
  const isBehind = Boolean(status) && status.catching_up > status.updates;
  const share = isBehind ? status.updates / status.catching_up : Math.min(1, step / steps);
  byId("done").style.width = `${100 * share}%`;
  byId("bar").classList.toggle("catching", isBehind);
  byId("bar").setAttribute("aria-valuenow", Math.round(100 * share));
  say("stage", stageText(status, step, steps, isBehind));
  say("left", run.is_live && status ? [status.words.pace, status.words.left].filter(Boolean).join(", ") : "");
  say("under", underText());
  document.title = `${status ? `${whole.format(step)}/${whole.format(steps)} ` : ""}${run.name} · sfnode`;
}

function lastStep() {
  return 1 + Math.max(-1, ...view.authors.map((each) => each.last_step));
}

function stageText(status, step, steps, isBehind) {
  if (view.verified) return `${whole.format(step)} of ${whole.format(steps)} steps done`;
  if (!status) return "The node is starting";
  if (isBehind) return `Catching up: ${percent(status.updates / status.catching_up)}`;
  if (!status.peers && status.expects_peers && step === 0) return "Looking for peers";
  if (status.model) return sentence(status.model.text);
  return sentence(status.words.stage);
}

function underText() {
  const { status, verified } = view;
  if (verified) {
    const made = new Date(1000 * verified.time).toISOString().slice(0, 16).replace("T", " ");
    return `A report of ${made} UTC. Each of ${count(verified.updates, "update")} was checked against its author's signature.`;
  }
  if (!status) return "It reads its disk, or waits for its first look at the run.";
  if (status.catching_up > status.updates) {
    return `${whole.format(status.updates)} of ${count(status.catching_up, "update")} are here; training begins after that.`;
  }
  const held = `${count(status.updates, "update")} of ${count(status.authors, "author")} in the model`;
  return status.void_slots ? `${held}; ${count(status.void_slots, "slot")} void, because an author signed twice` : held;
}

function showTrouble() {
  const { status, evaluations } = view, found = [];
  if (view.run.is_live && status && status.words.trouble) found.push(`${sentence(status.words.trouble)}.`);
  const course = view.run.is_rewarded ? "mean reward on held-out data falls" : "loss on held-out data rises";
  if (evaluations.is_worse) found.push(`The ${course}: it was best at step ${whole.format(evaluations.best_step)}.`);
  const advice = status && view.run.is_live && found.length ? " `sfnode doctor` looks for the cause." : "";
  say("trouble", found.join(" ") + advice).hidden = !found.length;
}

// --- figures

function showTiles() {
  const { status, evaluations, authors } = view;
  const last = evaluations.points.at(-1), best = evaluations.points.find((each) => each[0] === evaluations.best_step);
  const own = authors.find((each) => each.is_own), all = view.verified ? view.verified.updates : status ? status.updates : 0;
  const tiles = [lossTile(status, last, best), accuracyTile(last, best)];
  tiles.push(own && all ? ["Own updates", whole.format(own.updates), `${percent(own.updates / all)} of all`] :
    ["Updates", whole.format(all), count(view.authors_in_all, "author")]);
  if (!view.verified && status) tiles.push(...liveTiles(status));
  else tiles.push(["Authors", whole.format(view.authors_in_all), ""]);
  byId("tiles").replaceChildren(...tiles.map(([name, value, note, css]) => element("div", {},
    element("dt", {}, name), element("dd", { class: `value ${css ?? ""}` }, value), element("dd", { class: "note" }, note))));
}

/** A loss, or a mean reward with two digits. */
function quality(value) {
  return view.run.is_rewarded && typeof value === "number" ? value.toFixed(2) : figure(value);
}

function lossTile(status, last, best) {
  const isRewarded = view.run.is_rewarded, name = isRewarded ? "mean reward" : "loss";
  if (last) return [`Held-out ${name}`, quality(last[1]), best ? `best ${quality(best[1])} at step ${whole.format(best[0])}` : ""];
  const isNamed = isRewarded && !view.run.draws_answers;
  const now = status ? (isNamed ? status.chance : isRewarded ? status.reward : status.loss) : null;
  return [isNamed ? "Chance of a right token" : isRewarded ? "Mean reward" : "Training loss", quality(now), "of the last batch"];
}

function accuracyTile(last, best) {
  const name = view.run.is_rewarded ? "Fully right" : "Accuracy";
  if (!last) return [name, "–", "not measured"];
  const other = best && best !== last ? `; ${percent(best[2])} at the best ${view.run.is_rewarded ? "reward" : "loss"}` : "";
  return [name, percent(last[2]), `at step ${whole.format(last[0])}${other}`];
}

function liveTiles(status) {
  const compared = view.neighbours.length, same = view.neighbours.filter((each) => each.is_equal).length;
  const isSame = compared > 0 && same === compared;
  return [
    ["Peers", whole.format(compared), `${bytes(status.bytes_in)} in, ${bytes(status.bytes_out)} out`, compared || !status.expects_peers ? "" : "bad"],
    ["Same model as", compared ? `${same} of ${compared}` : "–", compared ? sameNote(isSame) : "no peer to compare with", isSame ? "good" : ""],
    ["Memory", status.memory.resident_bytes === null ? "–" : bytes(status.memory.resident_bytes), "without the model"],
  ];
}

function sameNote(isSame) {
  if (isSame) return "peers, bit for bit";
  const told = view.neighbours.filter((each) => each.updates !== null).map((each) => Math.abs(each.updates - view.status.updates));
  return told.length ? `peers in the last 30 s; ${whole.format(Math.max(...told))} updates apart at most` : "peers so far";
}

// --- curves

function showCurves() {
  const { evaluations, losses, run } = view, best = evaluations.best_step;
  const held = { points: evaluations.points.map(([step, loss]) => [step, loss]), css: "own", dots: true, best };
  const training = { points: losses, css: "second" };
  drawChart(byId("loss"), {
    series: [training, held], steps: run.steps, text: quality, least: 0,
    ...(run.is_rewarded ? { most: 1, room: 0.1 } : {}),
    empty: run.is_live ? "Nothing yet: it comes with the first step of this node." : "Nothing was kept.",
    label: trend(!run.is_rewarded ? "Loss" : held.points.length || run.draws_answers ? "Mean reward" : "Chance of a right token", held.points.length ? held.points : losses, quality),
  });
  drawChart(byId("accuracy"), {
    series: [{ points: evaluations.points.map(([step, , accuracy]) => [step, accuracy]), css: "own", dots: true, best }],
    steps: run.steps, text: percent, axis: (value) => `${(100 * value).toFixed(0)} %`, least: 0, most: 1, room: 0.1,
    empty: "Nothing measured yet. A node with --eval-every N measures it on held-out data each N steps.",
    label: trend(run.is_rewarded ? "Fully right" : "Accuracy", evaluations.points.map(([step, , accuracy]) => [step, accuracy]), percent),
  });
  say("loss-title", !run.is_rewarded ? "Loss" : run.draws_answers ? "Mean reward" : "Mean reward, and chance of a right token");
  say("accuracy-title", run.is_rewarded ? "Fully right" : "Accuracy");
  keyOf("loss-key", [held.points.length && ["", "held-out data"], losses.length && ["second", run.draws_answers ? "answers that this node sampled" : run.is_rewarded ? "chance of a right token in this node's batches" : "this node's batches"]]);
  keyOf("accuracy-key", [evaluations.points.length && ["", "held-out data"]]);
}

function trend(name, points, text) {
  if (!points.length) return `${name}: nothing yet`;
  const [first, last] = [points[0], points.at(-1)];
  return `${name}: ${text(first[1])} at step ${first[0]}, ${text(last[1])} at step ${last[0]}`;
}

function keyOf(id, entries) {
  byId(id).replaceChildren(...entries.filter(Boolean).map(([css, text]) => element("span", {}, element("i", { class: css }), text)));
}

// --- what was won

function showWon() {
  const { run, gain } = view;
  say("learns", sentence(run.learns));
  byId("won").replaceChildren(...gain.figures.map(([name, value]) =>
    element("div", {}, element("dt", {}, sentence(name)), element("dd", { class: "value" }, value))));
  say("won-note", gain.note);
}

function showAnswers() {
  byId("answers").replaceChildren(...view.answers.map(({ prompt, right, answers }, index) => element("li", {},
    element("p", {}, prompt || `Held-out row ${index + 1}`, element("span", { class: "muted" }, right && ` right: ${right}`)),
    ...answers.map(([name, text, reward]) => element("p", { class: reward >= 1 ? "good" : "" },
      element("span", { class: "muted" }, `${name}: `), text || "(nothing)",
      element("span", { class: "muted" }, right ? (reward >= 1 ? " ✓" : " ✗") : ` reward ${reward.toFixed(2)}`))))));
}

// --- authors

function showAuthors() {
  const { authors, run } = view;
  say("authors-key", authors.length ? `Each line is the run from step 0 to ${whole.format(run.steps)}: fuller where more of an author's steps count.` :
    "No update yet.");
  const rows = authors.map(authorRow);
  const more = view.authors_in_all - authors.length;
  if (more > 0) rows.push(element("li", {}, element("span", { class: "muted" }, `and ${whole.format(more)} more`)));
  byId("authors").replaceChildren(...rows);
}

function authorRow(each) {
  const isOut = each.excluded_from !== null;
  const strip = element("span", { class: "strip", "aria-hidden": "true" }, ...each.cells.map(cell));
  const name = each.is_own ? "this node" : label(each);
  const title = `${each.author}${isOut ? `, excluded from step ${each.excluded_from} on` : ""}`;
  return element("li", { class: each.is_own ? "is-own" : "" },
    element("span", { class: `who${each.is_own ? " own" : ""}${isOut ? " out" : ""}`, title }, name), strip,
    element("span", { class: "count" }, whole.format(each.updates)));
}

function cell(share) {
  const full = element("b");
  full.style.opacity = share ? 0.25 + 0.75 * share / 100 : 0;
  return element("i", {}, full);
}

// --- nodes

function showMap() {
  byId("map-card").hidden = !view.run.is_live;
  if (!view.run.is_live) return;  // who is linked with whom is not kept
  const now = view.status ? view.status.time : 0, top = lastStep();
  for (const each of view.neighbours) seen.neighbours.set(each.author, now);
  const held = new Set(view.neighbours.map((each) => each.author));
  const gone = [...seen.neighbours].filter(([author, time]) => !held.has(author) && now - time < GONE_S).map((each) => each[0]);
  const far = view.authors.filter((each) => !each.is_own && !held.has(each.author) && !gone.includes(each.author));
  const near = view.neighbours.map(nearNode);
  const nodes = [...near, ...gone.map(goneNode), ...far.map((each) => farNode(each, top))];
  if (JSON.stringify(nodes) === seen.drawn.map) return;
  seen.drawn.map = JSON.stringify(nodes);
  const text = `${count(near.length, "neighbour")} of this node, ${count(far.length, "other author")} behind them`;
  drawMap(byId("map"), nodes, text);
  say("map-key", mapKey(near.length, far.length));
  byId("neighbours").replaceChildren(...view.neighbours.map(neighbourRow));
}

function mapKey(near, far) {
  if (!near && !far) return "No other node is known yet.";
  return `Lines: ${count(near, "link")}, green where both hold the same, arrow to the node that was dialled.${far ? " Hollow: reached through others." : ""}`;
}

function nearNode(each) {
  const name = each.name || tiny(each.author);
  return { kind: "near", name, isOut: each.is_outbound, isSame: each.is_equal, title: `${label(each)}, ${each.address}` };
}

function goneNode(author) {
  return { kind: "gone", name: tiny(author), title: `${short(author)} was a neighbour until a moment ago` };
}

function farNode(each, top) {
  const isSilent = each.last_step < top - SILENT_STEPS;
  return { kind: "far", name: each.name || tiny(each.author), isSilent, title: `${label(each)}, ${count(each.updates, "update")}` };
}

function neighbourRow(each) {
  const delay = each.delay_ms === null ? "" : `, ${each.delay_ms < 10 ? each.delay_ms.toFixed(1) : Math.round(each.delay_ms)} ms`;
  return element("li", {}, element("span", { class: "who", title: each.author }, label(each)),
    element("span", {}, each.address),
    element("span", { class: "muted" }, `${each.is_outbound ? "dialled" : "came in"}${delay}`));
}

// --- log, digests, manifest

function showLog() {
  byId("log-card").hidden = !view.log.length;
  const log = byId("log"), isAtEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 30;
  log.replaceChildren(...view.log.map(([time, level, text]) => {
    const css = level >= LEVEL_ERROR ? "error" : level >= LEVEL_WARNING ? "warning" : "";
    return element("li", { class: css }, element("time", {}, new Date(1000 * time).toTimeString().slice(0, 8)), element("span", {}, text));
  }));
  if (isAtEnd) log.scrollTop = log.scrollHeight;
}

function showFacts() {
  byId("facts").replaceChildren(...view.run.facts.map(([name, value]) => fact(name, value)));
  say("version", `sfnode ${view.run.version}. This page only shows; it loads nothing from other machines.`);
}

function showDigests() {
  const held = view.verified ?? view.status;
  const rows = held ? [["Updates (digest)", held.ledger_root], ["Model (digest)", held.state_digest]] : [];
  byId("digests").replaceChildren(...rows.map(([name, value]) => fact(name, value || "not summed yet")));
}

function fact(name, value) {
  const isCode = /^[0-9a-f]{32,}$/.test(value);
  return element("div", {}, element("dt", {}, name), element("dd", { class: isCode ? "mono" : "" }, value));
}

// --- all of it

const SHOWN = [
  [showStage, ["run", "status", "authors"]],
  [showTrouble, ["run", "status", "evaluations"]],
  [showWon, ["run", "gain"]],
  [showTiles, ["status", "evaluations", "authors", "neighbours"]],
  [showCurves, ["evaluations", "losses", "run"]],
  [showAnswers, ["answers"]],
  [showAuthors, ["authors", "run"]],
  [showMap, ["authors", "neighbours", "status"]],
  [showLog, ["log", "run"]],
  [showFacts, ["run"]],
  [showDigests, ["status"]],
];

function show(sections) {
  Object.assign(view, sections);
  say("name", view.run.name);
  for (const [shows, needs] of SHOWN) if (needs.some((each) => each in sections)) shows();
}

function connect() {
  const source = new EventSource("events");
  const tell = (text, css) => { say("connection", text).className = `pill ${css}`; };
  source.onmessage = (event) => {
    tell("live", "live");
    show(JSON.parse(event.data));
  };
  source.onerror = () => {
    tell(view.run ? "the node does not answer" : "connecting", view.run ? "lost" : "");
    if (source.readyState === EventSource.CLOSED) setTimeout(connect, 3000);
  };
}

let width = window.innerWidth;
window.addEventListener("resize", () => {
  if (!view.run || window.innerWidth === width) return;
  width = window.innerWidth;
  seen.drawn = {};
  showCurves();
  showMap();
});

const kept = byId("view").textContent;
if (kept) {
  say("connection", "report");
  show(JSON.parse(kept));
} else {
  connect();
}
