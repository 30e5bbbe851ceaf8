// The frame of every player: a custom element that reads its data and hands over to its kind, and
// the controls that the kinds share. A player is a function (stage, data, say): it draws into
// `stage`, and `say` tells the reader, a screen reader's too, what changed. The still picture stays
// in the page for print, and for browsers without scripts.
"use strict";

const kernelPlayers = {};

// An element, with attributes and children. SVG where the name is one of SVG's.
const SVG_NAMES = new Set(["svg", "g", "rect", "path", "text", "tspan", "line", "circle", "defs", "pattern", "title", "polyline", "clipPath"]);
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

// The colour of operand, engine or kind number `index`: kernels.pictures.COLOURS.
const colourOf = (index) => `var(--colour-${index % 6})`;

// As kernels.pictures writes it.
function inBytes(count) {
  if (count < 1024) return `${count} bytes`;
  for (const unit of ["KiB", "MiB"]) {
    count /= 1024;
    if (count < 1024) return `${count.toFixed(1)} ${unit}`;
  }
  return `${(count / 1024).toFixed(1)} GiB`;
}

const ICONS = {
  first: "M4 3.5v9M12 3.5L7.5 8l4.5 4.5",
  previous: "M10.5 3.5L6 8l4.5 4.5",
  play: "M5.5 3.5l7 4.5-7 4.5z",
  pause: "M5.5 3.5v9M10.5 3.5v9",
  next: "M5.5 3.5L10 8l-4.5 4.5",
  last: "M4 3.5L8.5 8 4 12.5M12 3.5v9",
  plus: "M8 3.5v9M3.5 8h9",
  minus: "M3.5 8h9",
  fit: "M2.5 4v8M13.5 4v8M5 8h6M6.5 6L4.8 8l1.7 2M9.5 6l1.7 2-1.7 2",
  up: "M8 12.5v-9M4.5 7L8 3.5 11.5 7",
  reset: "M4.2 5.2a5 5 0 1 1-1 4M4 2.2v3.3h3.3",
};

// A button with an icon of ICONS; `label` is what it does, in words.
function button(label, icon, act, attributes = {}) {
  const node = make("button", { type: "button", class: "kernel-button", onclick: act, ...attributes });
  node.draw = (name, words) => {
    node.replaceChildren(
      make("svg", { viewBox: "0 0 16 16", width: 16, height: 16, "aria-hidden": "true" },
        make("path", { d: ICONS[name], class: name === "play" ? "kernel-solid" : "kernel-line" })),
    );
    node.title = words;
    node.setAttribute("aria-label", words);
  };
  node.draw(icon, label);
  return node;
}

// Keys of a focused stage: {ArrowLeft: act, …}. Keys pressed inside an input or a slider are its
// own; a button keeps space and enter.
function keys(stage, actions) {
  stage.tabIndex = 0;
  stage.dataset.lmSuppressShortcuts = "true"; // JupyterLab's own keys
  stage.addEventListener("keydown", (event) => {
    const own = event.target.closest("input, select, textarea");
    const pressed = event.target.closest("button, summary") && [" ", "Enter"].includes(event.key);
    const act = actions[(event.shiftKey && event.key.length > 1 ? "Shift+" : "") + event.key];
    if (!act || own || pressed || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    event.stopPropagation();
    act(event);
  });
}

// A whole number to type. change(number) is called for 1 ≤ number ≤ most, and returns a complaint
// or nothing; complain(text) shows one.
function field(label, value, most, change, complain) {
  const input = make("input", { type: "number", min: 1, max: most, step: 1, value, class: "kernel-field", "aria-label": label });
  input.addEventListener("change", () => {
    const number = Number(input.value);
    const fits = Number.isInteger(number) && number >= 1 && number <= most;
    const wrong = fits ? change(number) : `${label} is ${input.value.trim() || "empty"}; accepted: a whole number from 1 to ${most}`;
    input.setAttribute("aria-invalid", wrong ? "true" : "false");
    if (wrong) complain(wrong);
  });
  return input;
}

// First, previous, play, next, last, and a slider; and the keys for them on the stage: arrows, Home,
// End, space. show(index, playing) draws; word(index) names a step.
function stepper(stage, { count, show, word, pace = 700 }) {
  let index = 0;
  let timer = 0;
  const go = (to) => {
    index = Math.max(0, Math.min(count - 1, to));
    slider.value = index;
    slider.setAttribute("aria-valuetext", word(index));
    slider.style.setProperty("--done", `${count > 1 ? (100 * index) / (count - 1) : 100}%`);
    for (const node of [first, previous]) node.setAttribute("aria-disabled", index === 0);
    for (const node of [next, last]) node.setAttribute("aria-disabled", index === count - 1);
    show(index, timer !== 0);
  };
  const stop = () => {
    clearInterval(timer);
    timer = 0;
    play.draw("play", "Play (space)");
  };
  const step = (to) => { stop(); go(to); };
  const toggle = () => {
    if (timer) return step(index);
    if (index === count - 1) index = -1;
    play.draw("pause", "Pause (space)");
    timer = setInterval(() => {
      if (index + 1 >= count || !stage.isConnected) step(index);
      else go(index + 1);
    }, Math.max(90, Math.min(pace, 30000 / count)));
    go(index + 1);
  };
  const first = button("First (Home)", "first", () => step(0));
  const previous = button("Previous (left arrow)", "previous", () => step(index - 1));
  const play = button("Play (space)", "play", toggle);
  const next = button("Next (right arrow)", "next", () => step(index + 1));
  const last = button("Last (End)", "last", () => step(count - 1));
  const slider = make("input", { type: "range", class: "kernel-slider", min: 0, max: count - 1, step: 1, value: 0, "aria-label": "step", oninput: () => step(Number(slider.value)) });
  keys(stage, {
    ArrowLeft: () => step(index - 1),
    ArrowRight: () => step(index + 1),
    Home: () => step(0),
    End: () => step(count - 1),
    " ": toggle,
  });
  return {
    node: make("div", { class: "kernel-controls" }, make("span", { class: "kernel-buttons" }, first, previous, play, next, last), slider),
    go,
    // Another number of steps: from the first again.
    resize(steps) {
      count = steps;
      slider.max = count - 1;
      step(0);
    },
  };
}

// A box of words beside what is hovered or focused; (x, y) in pixels of the stage. It says the same
// to a screen reader, and Escape puts it away.
function tooltip(stage) {
  const node = make("div", { class: "kernel-tip", role: "tooltip", hidden: true });
  stage.append(node);
  stage.addEventListener("keydown", (event) => { if (event.key === "Escape") node.hidden = true; });
  return {
    show(x, y, title, ...lines) {
      node.replaceChildren(make("strong", {}, title), ...lines.filter(Boolean).map((line) => make("span", {}, line)));
      node.hidden = false;
      // Inside the stage: what scrolls around it would cut it off.
      const [right, bottom] = [stage.clientWidth - node.offsetWidth, stage.clientHeight - node.offsetHeight];
      node.style.left = `${Math.max(0, Math.min(x + 12, right))}px`;
      node.style.top = `${Math.max(0, Math.min(y + 14, bottom))}px`;
    },
    hide() { node.hidden = true; },
  };
}

class KernelPlayer extends HTMLElement {
  connectedCallback() {
    const play = kernelPlayers[this.getAttribute("kind")];
    const source = this.querySelector('script[type="application/json"]');
    if (!play || !source || this.dataset.playing) return;
    const still = this.querySelector(".kernel-picture");
    const stage = make("div", { class: "kernel-stage", role: "group", "aria-label": this.getAttribute("says") });
    const words = make("p", { class: "kernel-words", role: "status", "aria-live": "polite" });
    const say = (text, quietly = false) => {
      words.setAttribute("aria-live", quietly ? "off" : "polite");
      words.textContent = text;
    };
    say.words = words; // a player may put them into its stage
    this.append(stage, words); // on the page, so that the player can measure itself
    try {
      play(stage, JSON.parse(source.textContent), say);
    } catch (error) {
      console.error(error); // the still picture stays
      stage.remove();
      words.remove();
      return;
    }
    this.dataset.playing = "yes";
    still.classList.add("kernel-still");
    const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
    if (this.hasAttribute("autoplay") && !calm) stage.querySelector('[aria-label^="Play"]')?.click();
  }
}

// After all of the page is there, a parser fires connectedCallback before the children; and after
// all kinds are, where an output of a notebook brings this into a page that is.
function define() {
  if (!customElements.get("kernel-player")) customElements.define("kernel-player", KernelPlayer);
}
if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", define);
else setTimeout(define);
