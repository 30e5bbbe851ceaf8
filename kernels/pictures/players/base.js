// The frame of every player: a custom element that reads its data and hands over to its kind.
// A player is a function (stage, data, say): it draws into `stage`, and `say` tells a screen reader
// what changed. The still picture stays in the page for print, and for browsers without scripts.
"use strict";

const kernelPlayers = {};

// An element, with attributes and children. SVG where the name is one of SVG's.
const SVG_NAMES = new Set(["svg", "g", "rect", "path", "text", "line", "circle", "defs", "pattern", "title", "polyline"]);
function make(name, attributes = {}, ...children) {
  const node = SVG_NAMES.has(name)
    ? document.createElementNS("http://www.w3.org/2000/svg", name)
    : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (value !== undefined && value !== false) node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children);
  return node;
}

class KernelPlayer extends HTMLElement {
  connectedCallback() {
    const play = kernelPlayers[this.getAttribute("kind")];
    const source = this.querySelector('script[type="application/json"]');
    if (!play || !source || this.dataset.playing) return;
    const still = this.querySelector(".kernel-picture");
    const stage = make("div", { class: "kernel-stage", role: "group", "aria-label": this.getAttribute("says") });
    const words = make("p", { class: "kernel-words", role: "status", "aria-live": "polite" });
    try {
      play(stage, JSON.parse(source.textContent), (text) => { words.textContent = text; });
    } catch (error) {
      console.error(error); // the still picture stays
      return;
    }
    this.dataset.playing = "yes";
    still.classList.add("kernel-still");
    this.append(stage, words);
  }
}

// After all of the page is there: a parser fires connectedCallback before the children.
document.addEventListener("DOMContentLoaded", () => customElements.define("kernel-player", KernelPlayer));
