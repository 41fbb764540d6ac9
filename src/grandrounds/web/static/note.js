// The text with its mentions marked and their relations as arcs.

import { characters, el, svg } from "./dom.js";

export const ASSERTIONS = ["negated", "possible", "family", "historical", "conditional"];
export const VERDICTS = { right: "✓ in gold", partly: "≈ partly in gold", wrong: "✗ not in gold" };
const LANES = 4, MOST_ARCS = 150;
const pieces = mention => mention.fragments || [[mention.start, mention.end]];

// Mentions may nest and overlap, which elements may not: the text is cut at every edge, and each piece is wrapped in
// all that covers it, the longest outermost.
export function drawText(box, view) {
  const { text, sentences } = view.found;
  const cut = characters(text);
  const covers = [];
  view.mentions.forEach(mention => pieces(mention).forEach(([start, end]) => covers.push({ start, end, mention })));
  view.missed.forEach(mention => pieces(mention).forEach(([start, end]) => covers.push({ start, end, mention, missed: true })));
  view.mentions.forEach(mention => triggers(mention).forEach(({ start, end }) => covers.push({ start, end, of: mention.id })));
  const shaded = new Set(view.relations.flatMap(relation => relation.evidence.map(({ start }) => start)));
  const evidence = sentences.filter(([start]) => shaded.has(start));
  covers.sort((a, b) => (b.end - b.start) - (a.end - a.start));
  const length = Array.from(text).length;
  const edges = [...new Set([0, length, ...evidence.flat(), ...covers.flatMap(({ start, end }) => [start, end])])].sort((a, b) => a - b);
  const place = new Map(edges.map((edge, i) => [edge, i]));
  const over = edges.map(() => []);
  for (const cover of covers) for (let i = place.get(cover.start); i < place.get(cover.end); i++) over[i].push(cover);
  const lanes = laneOf(view.mentions.concat(view.missed));
  const sentenceAt = new Map(evidence.map(([start, end]) => [start, end]));
  box.replaceChildren();
  let into = box, until = -1;
  for (let i = 0; i + 1 < edges.length; i++) {
    if (edges[i] >= until) into = box;
    if (sentenceAt.has(edges[i])) {
      until = sentenceAt.get(edges[i]);
      into = el("span", { "data-sentence": edges[i] });
      box.append(into);
    }
    let inner = document.createTextNode(cut(edges[i], edges[i + 1]));
    for (const cover of over[i].slice().reverse()) inner = wrapped(inner, cover, edges[i + 1], lanes, view);
    into.append(inner);
  }
}

function wrapped(inner, cover, end, lanes, view) {
  if (cover.of) return el("span", { class: "trigger", "data-of": cover.of }, inner);
  const { mention, missed } = cover;
  const classes = `${view.colours[mention.type] || "rest"} l${lanes.get(mention)}${missed ? " missed" : ""}`;
  const mark = el("mark", { class: classes, "data-mention": missed ? null : mention.id }, inner);
  if (end === mention.end) mark.append(el("span", { class: "tag" }, " " + words(mention, missed, view).join(" · ")));
  return mark;
}

// What stands beside a mention, since its colour alone is no sign.
function words(mention, missed, view) {
  const verdict = missed ? "missed" : view.verdicts ? VERDICTS[view.verdicts.get(mention.id)] : null;
  return [mention.type, ...ASSERTIONS.filter(name => name in mention), ...(verdict ? [verdict] : [])];
}

export function triggers(mention) {
  return ASSERTIONS.map(name => mention[name]).filter(said => said && typeof said === "object");
}

function laneOf(mentions) {
  const lanes = new Map(), open = [];
  for (const mention of mentions.slice().sort((a, b) => a.start - b.start || b.end - a.end)) {
    let lane = 0;
    while (open[lane] > mention.start) lane++;
    open[lane] = mention.end;
    lanes.set(mention, lane % LANES);
  }
  return lanes;
}

// An arc for each relation that is shown, the active one with its type; of very many the active one alone.
export function drawArcs(reading, view, active) {
  reading.querySelector("svg")?.remove();
  const drawn = view.relations.length <= MOST_ARCS ? view.relations : [];
  const box = reading.getBoundingClientRect();
  const tip = svg("marker", { id: "tip", viewBox: "0 0 8 8", refX: 6, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" },
    svg("path", { d: "M0 0 8 4 0 8z" }));
  const picture = svg("svg", { class: "arcs", width: box.width, height: box.height, "aria-hidden": "true" }, svg("defs", {}, tip));
  const levels = new Map();
  for (const relation of drawn.includes(active) ? drawn : [...drawn, ...(active ? [active] : [])]) {
    const ends = [relation.head, relation.tail].map(end => anchor(reading, box, end.mention));
    if (ends.some(end => end === null)) continue;
    const [[x1, y1], [x2, y2]] = ends;
    const line = Math.round(Math.min(y1, y2) / 8), level = levels.get(line) ?? 0;
    levels.set(line, level + 1);
    const top = Math.min(y1, y2) - 8 - 5 * (level % 4);  // neighbours in one gap lie beside each other
    const path = svg("path", { d: way(x1, y1, x2, y2, top), "marker-end": "url(#tip)" });
    const arc = svg("g", { class: relation === active ? "arc on" : "arc" }, path);
    if (relation === active) {
      const middle = Math.min(Math.max((x1 + x2) / 2, 40), box.width - 40);
      const name = svg("text", { x: middle, y: top + 4, "text-anchor": "middle" });
      name.textContent = relation.type;
      arc.append(name);
    }
    picture.append(arc);
  }
  picture.append(...picture.querySelectorAll(".on"));  // over the others
  reading.append(picture);
}

// Up into the gap above the higher line, along it, and down: it crosses as few words as may be.
function way(x1, y1, x2, y2, top) {
  const side = Math.sign(x2 - x1), round = Math.min(7, Math.abs(x2 - x1) / 2);
  return `M${x1} ${y1} V${top + round} Q${x1} ${top} ${x1 + side * round} ${top} H${x2 - side * round} Q${x2} ${top} ${x2} ${top + round} V${y2}`;
}

function anchor(reading, box, id) {
  const mark = reading.querySelector(`mark[data-mention="${CSS.escape(id)}"]`);
  const line = mark?.getClientRects()[0];
  return line ? [line.left + Math.min(line.width / 2, 40) - box.left, line.top - box.top] : null;
}

// The two ends, other mentions of the same entities, and the evidence; or one mention and what says it is so.
export function paint(box, view, active) {
  for (const name of ["head", "tail", "same", "evidence", "on"])
    for (const one of box.querySelectorAll(`.${name}`)) one.classList.remove(name);
  const add = (id, name) => box.querySelectorAll(`mark[data-mention="${CSS.escape(id)}"]`).forEach(one => one.classList.add(name));
  if (active?.head) {
    for (const [end, name] of [[active.head, "head"], [active.tail, "tail"]]) {
      const entity = view.found.entities.find(one => one.id === end.entity);
      entity?.mentions.forEach(id => id === end.mention || add(id, "same"));
      add(end.mention, name);
    }
    for (const { start } of active.evidence) box.querySelector(`[data-sentence="${start}"]`)?.classList.add("evidence");
  } else if (active) {
    add(active.id, "head");
    box.querySelectorAll(`[data-of="${CSS.escape(active.id)}"]`).forEach(one => one.classList.add("on"));
  }
}
