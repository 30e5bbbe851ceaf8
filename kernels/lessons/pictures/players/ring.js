// A reduce-scatter on a ring of chips, event by event, for a choice of speeds. Every text comes with
// the page; the script only keeps what stands in which place.
kernelPlayers.ring = (stage, data, say) => {
  const TALL = 30;
  let chosen = data.start;
  let event = 0;

  const title = make("p", { class: "kernel-title" });
  const lanes = make("div", { class: "kernel-lanes" });
  const choice = make("input", { type: "range", class: "kernel-slider", min: 0, max: data.choices.length - 1, step: 1, value: chosen, "aria-label": "speeds", oninput: () => choose(Number(choice.value)) });

  function draw() {
    const events = data.choices[chosen].events;
    const texts = Array(data.cells * data.devices).fill("");
    for (const [, changes] of events.slice(0, event + 1)) for (const [cell, text] of changes) texts[cell] = text;
    const changed = new Set(events[event][1].map(([cell]) => cell));
    const width = Math.max(280, lanes.clientWidth || stage.clientWidth - 26);
    const wide = (width - 4) / data.devices;
    const picture = make("svg", { viewBox: `-2 0 ${width} 128`, width, height: 128, "aria-hidden": "true", "font-size": wide < 120 ? 11 : 12 });
    const write = (x, y, text, look = {}) => picture.append(make("text", { x, y, fill: "currentColor", ...look }, text));
    for (let device = 0; device < data.devices; device += 1) {
      const x = device * wide;
      const [, , link, state] = texts.slice(data.cells * device, data.cells * (device + 1));
      write(x, 13, `device ${device}`, { "font-weight": 600 });
      write(x, 28, state);
      for (let slot = 0; slot < 2; slot += 1) {
        const text = texts[data.cells * device + slot];
        const y = 36 + slot * (TALL + 6);
        const lost = text.startsWith(data.lost);
        const now = changed.has(data.cells * device + slot);
        picture.append(make("rect", { class: lost ? "kernel-lost" : "", x, y, width: wide - 12, height: TALL, fill: lost ? "#c8443c" : colourOf(slot), "fill-opacity": text ? 0.3 : 0, stroke: "currentColor", "stroke-width": now ? 2.5 : 1 }));
        write(x + 6, y + 20, (lost ? text.slice(data.lost.length) : text) || `slot ${slot}`, text ? {} : { "fill-opacity": 0.6 });
      }
      write(x, 122, link && `⇒ ${wide < 120 ? link.split(" ", 2).join(" ") : link}`);
    }
    lanes.replaceChildren(picture);
  }

  function choose(index) {
    chosen = index;
    const { label, events } = data.choices[index];
    choice.value = index;
    choice.setAttribute("aria-valuetext", label);
    choice.style.setProperty("--done", `${(100 * index) / (data.choices.length - 1)}%`);
    title.replaceChildren(make("strong", {}, label));
    steps.resize(events.length);
  }

  const steps = stepper(stage, {
    count: data.choices[chosen].events.length,
    pace: 900,
    word: (index) => `event ${index + 1}`,
    show: (index, playing) => {
      event = index;
      draw();
      say(data.choices[chosen].events[index][0], playing);
    },
  });
  stage.append(title, make("label", { class: "kernel-controls" }, make("span", {}, "speeds"), choice), steps.node, lanes, say.words);
  choose(chosen);
  let before = stage.clientWidth;
  new ResizeObserver(() => {
    if (stage.clientWidth === before) return;
    before = stage.clientWidth;
    draw();
  }).observe(stage);
};
