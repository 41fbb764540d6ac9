// Elements from values. Words of notes, labels and files only ever become text nodes or plain attributes.

export const byId = id => document.getElementById(id);

export function el(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value !== null && value !== false) made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.filter(child => child !== null));
  return made;
}

export function svg(name, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

// Python counts characters, JavaScript counts halves of some of them.
export function characters(text) {
  if (!/[\ud800-\udbff][\udc00-\udfff]/.test(text)) return (start, end) => text.slice(start, end);
  const places = [];
  for (let at = 0; at < text.length; at += text.codePointAt(at) > 0xffff ? 2 : 1) places.push(at);
  places.push(text.length);
  return (start, end) => text.slice(places[start], places[end]);
}

export const plural = (number, thing) => `${number} ${thing}${number === 1 ? "" : "s"}`;
