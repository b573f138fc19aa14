"use strict";
// What everything else on the page is made with: elements, and figures as people read them.

const SVG = "http://www.w3.org/2000/svg";

/** An element; `attributes` may hold `class` and the like, children are elements or texts. */
function element(name, attributes = {}, ...children) {
  return filled(document.createElement(name), attributes, children);
}

/** The same in a picture. */
function mark(name, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, name), attributes, children);
}

function filled(made, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function byId(id) { return document.getElementById(id); }

/** A text goes in only where it has changed: else whoever has it read aloud hears it again and again. */
function say(id, text) {
  const place = byId(id);
  if (place.textContent !== text) place.textContent = text;
  return place;
}

const whole = new Intl.NumberFormat("en");
const count = (number, noun) => `${whole.format(number)} ${noun}${number === 1 ? "" : "s"}`;
const percent = (share) => `${(100 * share).toFixed(1)} %`;
const sentence = (text) => text[0].toUpperCase() + text.slice(1);
const short = (text) => text.slice(0, 16);
const tiny = (text) => text.slice(0, 8);  // where several stand side by side in a picture
const label = (each) => each.name ? `${each.name} ${short(each.author)}` : short(each.author);

/** A loss, or the like, with about four digits. */
function figure(value) {
  if (value === null || value === undefined) return "–";
  const digits = Math.abs(value) >= 100 ? 1 : Math.abs(value) >= 10 ? 2 : 3;
  return value.toFixed(digits);
}

function duration(seconds) {
  const minutes = Math.round(seconds / 60), hours = Math.floor(minutes / 60), days = Math.floor(hours / 24);
  if (days) return `${days} d ${hours % 24} h`;
  if (hours) return `${hours} h ${minutes % 60} min`;
  return seconds < 90 ? `${Math.round(seconds)} s` : `${minutes} min`;
}

function bytes(size) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  while (size >= 1000 && unit < units.length - 1) { size /= 1000; unit += 1; }
  return `${unit ? size.toFixed(1) : Math.round(size)} ${units[unit]}`;
}
