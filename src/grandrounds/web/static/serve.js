// The page of `grandrounds serve`: a note in, what it says out. Nothing is kept beyond this page.

import { byId, el, plural } from "./dom.js";
import { agreementSentence, drawMentions, drawRelations } from "./lists.js";
import { drawArcs, drawText, paint } from "./note.js";

let answer = null, number = 0, hidden = new Set(), least = 0, view = null, held = null, pointed = null;
const reading = document.querySelector(".reading");

async function ask(path, body) {
  let response;
  try {
    response = await fetch(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
  } catch {
    throw new Error("the server does not answer; is it still running?");
  }
  if (!response.ok) throw new Error((await response.json().catch(() => ({}))).error || `the server answered ${response.status}`);
  return response;
}

async function read(files) {
  byId("read").disabled = true;
  byId("read").textContent = "Reading …";
  byId("problem").hidden = true;
  const began = performance.now();
  try {
    answer = await (await ask("/read", { files })).json();
    number = 0;
    hidden = new Set();
    byId("document").replaceChildren(...answer.documents.map((one, i) => el("option", { value: i }, one.found.id)));
    byId("which").hidden = answer.documents.length < 2;
    byId("result").hidden = false;
    byId("note").classList.add("read");
    show();
    const seconds = (performance.now() - began) / 1000;
    byId("status").textContent = `${counted()} in ${seconds < 0.1 ? "less than 0.1" : seconds.toFixed(1)} s.${passedOver()}`;
    byId("result").scrollIntoView({ block: "start" });
  } catch (problem) {
    complain(problem);
  } finally {
    byId("read").disabled = false;
    byId("read").textContent = "Read";
  }
}

function complain(problem) {
  const said = problem.message;
  byId("problem").textContent = said.charAt(0).toUpperCase() + said.slice(1) + (/[.?!]$/.test(said) ? "" : ".");
  byId("problem").hidden = false;
}

function counted() {
  const total = kind => answer.documents.reduce((sum, one) => sum + one.found[kind].length, 0);
  const documents = answer.documents.length > 1 ? ` in ${plural(answer.documents.length, "document")}` : "";
  return `${plural(total("mentions"), "mention")} and ${plural(total("relations"), "relation")} were found${documents}`;
}

function passedOver() {
  const parts = Object.entries(answer.warnings).map(([what, count]) => `${count} ${what}`);
  return parts.length ? ` Passed over: ${parts.join("; ")}.` : "";
}

// What of a document is shown, with the filters as they are.
function shownOf(one) {
  const shown = part => !hidden.has(part.type) && (part.score ?? 1) >= least;
  const mentions = one.found.mentions.filter(shown);
  const ids = new Set(mentions.map(mention => mention.id));
  const kept = relation => !hidden.has(`→${relation.type}`) && (relation.score ?? 1) >= least && ids.has(relation.head.mention) && ids.has(relation.tail.mention);
  return { mentions, relations: one.found.relations.filter(kept) };
}

function show() {
  const one = answer.documents[number];
  const gold = one.gold !== null && byId("gold").checked;
  const { agreement } = one;
  view = {
    ...shownOf(one), found: one.found, colours: answer.colours, agreement, buttons: new Map(),
    missed: gold ? agreement.missed_mentions.map(i => one.gold.mentions[i]).filter(mention => !hidden.has(mention.type)) : [],
    missedRelations: gold ? agreement.missed_relations.map(i => one.gold.relations[i]).filter(({ type }) => !hidden.has(`→${type}`)) : [],
    verdicts: gold ? new Map(one.found.mentions.map((mention, i) => [mention.id, agreement.mentions[i]])) : null,
    relationVerdicts: gold ? new Map(one.found.relations.map((relation, i) => [relation, agreement.relations[i]])) : null,
  };
  held = pointed = null;
  byId("with-gold").hidden = one.gold === null;
  byId("agreement").hidden = !gold;
  byId("agreement").textContent = gold ? agreementSentence(view) : "";
  view.relations.sort((a, b) => (b.score ?? 0) - (a.score ?? 0));
  filters(byId("types"), one, "mentions", "");
  filters(byId("relation-types"), one, "relations", "→");
  drawText(byId("text"), view);
  drawRelations(byId("relations"), view, point, hold);
  drawMentions(byId("mentions"), view, point, hold);
  drawArcs(reading, view, null);
}

function filters(box, one, kind, mark) {
  const focused = document.activeElement?.value, counts = new Map();
  for (const part of [...one.found[kind], ...(one.gold ? one.gold[kind] : [])]) counts.set(part.type, 0);
  for (const part of one.found[kind]) counts.set(part.type, counts.get(part.type) + 1);
  const boxes = [...counts].sort(([a], [b]) => a < b ? -1 : 1).map(([type, count]) => el("label", { class: "filter" },
    el("input", {
      type: "checkbox", value: mark + type, checked: !hidden.has(mark + type),
      onchange: event => { hidden[event.target.checked ? "delete" : "add"](mark + type); show(); announce(); },
    }),
    mark ? type : el("mark", { class: answer.colours[type] || "rest" }, type), ` ${count}`));
  box.replaceChildren(box.querySelector("legend"), ...boxes);
  box.hidden = boxes.length === 0;
  boxes.map(label => label.querySelector("input")).find(input => input.value === focused)?.focus();
}

function announce() {
  byId("status").textContent = `${plural(view.mentions.length, "mention")} and ${plural(view.relations.length, "relation")} are shown.`;
}

function point(what) {
  pointed = what;
  activate();
}

function hold(what) {
  held = held === what ? null : what;
  pointed = null;
  activate();
  for (const [relation, button] of view.buttons) button.setAttribute("aria-pressed", String(relation === held));
  reading.querySelector(".head")?.scrollIntoView({ block: "nearest" });
}

function activate() {
  const active = pointed ?? held;
  paint(byId("text"), view, active);
  drawArcs(reading, view, active?.head ? active : null);
  for (const [relation, button] of view.buttons) button.classList.toggle("on", relation === active);
}

async function save(format) {
  try {
    const documents = answer.documents.map(one => {
      const { mentions, relations } = shownOf(one);
      return { document: one.json, mentions: mentions.map(({ id }) => id), relations: relations.map(relation => one.found.relations.indexOf(relation)) };
    });
    const response = await ask("/export", { format, documents });
    const place = URL.createObjectURL(await response.blob());
    const name = /filename="([\w.-]+)"/.exec(response.headers.get("content-disposition"))?.[1] || format;
    el("a", { href: place, download: name }).click();
    setTimeout(() => URL.revokeObjectURL(place), 10000);
    byId("status").textContent = `${name} was saved with what is shown.`;
  } catch (problem) {
    complain(problem);
  }
}

async function take(files) {
  if (!files.length) return;
  if ([...files].reduce((sum, file) => sum + file.size, 0) > 5e6) return complain(new Error("these files are too large for this page; use grandrounds extract"));
  const contents = await Promise.all([...files].map(async file => ({ name: file.name, content: await file.text() })));
  byId("note").value = contents.length === 1 ? contents[0].content : "";
  byId("note").placeholder = contents.map(({ name }) => name).join(", ");
  await read(contents);
}

byId("form").addEventListener("submit", event => {
  event.preventDefault();
  if (byId("note").value.trim()) read([{ name: "note.txt", content: byId("note").value }]);
  else byId("note").focus();
});
byId("note").addEventListener("keydown", event => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) byId("form").requestSubmit();
});
byId("files").addEventListener("change", event => { take(event.target.files); event.target.value = ""; });
byId("document").addEventListener("change", event => { number = Number(event.target.value); show(); });
byId("gold").addEventListener("change", () => { show(); announce(); });
byId("score").addEventListener("input", event => {
  least = Number(event.target.value);
  byId("least").textContent = least.toFixed(2);
  if (answer) show();
});
byId("score").addEventListener("change", () => answer && announce());
for (const button of document.querySelectorAll("[data-format]")) button.addEventListener("click", () => save(button.dataset.format));
document.addEventListener("keydown", event => { if (event.key === "Escape" && held) hold(held); });

const carries = event => event.dataTransfer?.types.includes("Files");
document.addEventListener("dragover", event => { if (carries(event)) { event.preventDefault(); byId("over").hidden = false; } });
document.addEventListener("dragleave", event => { if (event.relatedTarget === null) byId("over").hidden = true; });
document.addEventListener("drop", event => {
  if (!carries(event)) return;
  event.preventDefault();
  byId("over").hidden = true;
  take(event.dataTransfer.files);
});
new ResizeObserver(() => { if (view) activate(); }).observe(reading);
