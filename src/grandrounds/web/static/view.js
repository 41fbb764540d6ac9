// Follows the server: parts of the page that have changed come as markup that the server has made and escaped.
import { byId } from "./dom.js";

let ahead = Date.now() / 1000 - Number(byId("footer").dataset.now);

function put(name, markup) {
  const part = byId(`part-${name}`);
  const open = [...part.querySelectorAll("details")].map(one => one.open);
  const scrolled = [...part.querySelectorAll(".wide, .long")].map(one => [one.scrollLeft, one.scrollTop]);
  part.innerHTML = markup;
  part.querySelectorAll("details").forEach((one, place) => { one.open = open[place] ?? false; });
  part.querySelectorAll(".wide, .long").forEach((one, place) => {
    [one.scrollLeft, one.scrollTop] = scrolled[place] ?? [0, 0];
  });
}

function ago(seconds) {
  if (seconds < 2) return "now";
  if (seconds < 60) return `${Math.floor(seconds)} s ago`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  return seconds < 86400 ? `${Math.floor(seconds / 3600)} h ago` : "";
}

// How long ago each site was heard of, which changes though nothing else does.
function tick() {
  const now = Date.now() / 1000 - ahead;
  for (const time of document.querySelectorAll("#part-sites time, #part-policy td time")) {
    const said = ago(now - Date.parse(time.dateTime) / 1000);
    if (said) time.dataset.ago = said;
  }
}

const stream = new EventSource("/events");
stream.addEventListener("parts", said => {
  const { now, parts } = JSON.parse(said.data);
  ahead = Date.now() / 1000 - now;
  for (const [name, markup] of Object.entries(parts)) put(name, markup);
  document.title = document.querySelector("h1").textContent;
  tick();
});
stream.addEventListener("open", () => { byId("lost").hidden = true; });
stream.addEventListener("error", () => { byId("lost").hidden = false; });
setInterval(tick, 1000);
tick();
