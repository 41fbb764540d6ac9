// What was found as lists: relations as buttons that can be held, mentions as a table, gold in a sentence.

import { el, plural } from "./dom.js";
import { ASSERTIONS, VERDICTS } from "./note.js";

const MOST_ROWS = 500;

export function drawRelations(box, view, point, hold) {
  const title = el("h2", {}, plural(view.relations.length, "relation"));
  const list = el("ul", { class: "plain" });
  for (const relation of view.relations.slice(0, MOST_ROWS)) {
    const verdict = view.verdicts && view.relationVerdicts.get(relation);
    const button = el("button", {
      class: "relation", type: "button", "aria-pressed": "false",
      onmouseenter: () => point(relation), onmouseleave: () => point(null),
      onfocus: () => point(relation), onblur: () => point(null), onclick: () => hold(relation),
    },
      el("span", { class: "type" }, el("span", {}, relation.type), el("span", { class: "score" }, figure(relation.score))),
      `${brief(relation.head.text, 60)} → ${brief(relation.tail.text, 60)}`,
      verdict ? el("span", { class: `verdict ${verdict}` }, VERDICTS[verdict]) : null,
      ...relation.evidence.map(({ text }) => el("q", { class: "why" }, brief(text, 160))));
    view.buttons.set(relation, button);
    list.append(el("li", {}, button));
  }
  const missed = view.missedRelations.map(relation => el("li", { class: "relation missed" },
    el("span", { class: "type" }, el("span", {}, relation.type), el("span", {}, "missed")),
    `${brief(relation.head.text, 60)} → ${brief(relation.tail.text, 60)}`));
  list.append(...missed.slice(0, MOST_ROWS));
  box.replaceChildren(title, list, left(view.relations.length) ?? "");
  if (view.relations.length + missed.length) box.hidden = false;
}

export function drawMentions(box, view, point, hold) {
  const columns = ["mention", "type", "score", "said to be", "concept", ...(view.verdicts ? ["gold"] : [])];
  const head = el("thead", {}, el("tr", {}, ...columns.map(name => el("th", { scope: "col", class: name === "score" ? "number" : null }, name))));
  const rows = view.mentions.slice(0, MOST_ROWS).map(mention => el("tr", {},
    el("td", {}, el("button", {
      type: "button", class: "link",
      onmouseenter: () => point(mention), onmouseleave: () => point(null),
      onfocus: () => point(mention), onblur: () => point(null), onclick: () => hold(mention),
    }, brief(mention.text, 80))),
    el("td", {}, el("span", { class: `swatch ${view.colours[mention.type] || "rest"}`, "aria-hidden": "true" }), mention.type),
    cell(figure(mention.score), "number"),
    cell(asserted(mention)),
    cell(linked(mention)),
    ...(view.verdicts ? [el("td", {}, VERDICTS[view.verdicts.get(mention.id)])] : [])));
  const missed = view.missed.map(mention => el("tr", { class: "missed" },
    el("td", {}, brief(mention.text, 80)),
    el("td", {}, el("span", { class: `swatch ${view.colours[mention.type] || "rest"}`, "aria-hidden": "true" }), mention.type),
    cell("–", "number"), cell("–"), cell(mention.concept || "–"), el("td", {}, "missed")));
  const table = el("table", { "aria-labelledby": "mentions-title" }, head, el("tbody", {}, ...rows, ...missed.slice(0, MOST_ROWS)));
  box.replaceChildren(rows.length + missed.length ? table : el("p", { class: "soft" }, "None are shown."), left(view.mentions.length) ?? "");
}

export function agreementSentence(view) {
  const count = (verdicts, name) => verdicts.filter(verdict => verdict === name).length;
  const { mentions, missed_mentions, relations, missed_relations } = view.agreement;
  const parts = [`mentions: ${count(mentions, "right")} in gold, ${count(mentions, "partly")} partly, ${count(mentions, "wrong")} not in gold, ${missed_mentions.length} missed`];
  if (relations.length + missed_relations.length)
    parts.push(`relations: ${count(relations, "right")} in gold, ${count(relations, "wrong")} not in gold, ${missed_relations.length} missed`);
  return `Against gold, before any filter: ${parts.join("; ")}.`;
}

const cell = (said, kind = "") => el("td", { class: said === "–" ? `${kind} none` : kind || null }, said);

function asserted(mention) {
  const said = ASSERTIONS.filter(name => name in mention);
  if (!said.length) return "–";
  return said.map(name => typeof mention[name] === "object" ? `${name} (“${brief(mention[name].trigger, 40)}”)` : name).join(", ");
}

function linked(mention) {
  if (!mention.concept) return "–";
  return mention.concept.split("|").join(" or ") + (mention.link_score === undefined ? "" : ` (${figure(mention.link_score)})`);
}

const left = number => number > MOST_ROWS ? el("p", { class: "soft" }, `The first ${MOST_ROWS} of ${number} are listed; raise the score or filter to see others.`) : null;
const figure = score => typeof score === "number" ? score.toFixed(2) : "–";
const brief = (text, most) => { const line = text.replace(/\s+/g, " "); return line.length > most ? `${line.slice(0, most - 1)}…` : line; };
