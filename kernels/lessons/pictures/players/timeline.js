// The engines of a NeuronCore over time: one lane an engine, one bar an instruction. Zoom, pan, and
// ask an instruction what it waited for.
kernelPlayers.timeline = (() => {
  const BAR = 26; // pixels
  const LANE = 58;
  const TOP = 22; // for the cycles
  const MERGE = 1.5; // pixels: shorter bars that touch are drawn as one
  const MOST_ZOOM = 400;

  // 1, 2 or 5 times a power of ten: about `parts` of them in `span`.
  function tickOf(span, parts) {
    const power = 10 ** Math.floor(Math.log10(span / parts));
    return [1, 2, 5, 10].map((m) => m * power).find((t) => span / t <= parts);
  }

  const shade = (kind) => (kind < 6 ? 0.78 : 0.4); // a second round of the colours

  return (stage, data, say) => {
    const slots = data.slots.map(([lane, kind, start, end, source, ...after], number) => ({ number, lane, kind, start, end, source, after }));
    const lanes = data.lanes.map((lane, l) => ({ ...lane, slots: slots.filter((slot) => slot.lane === l).sort((a, b) => a.start - b.start) }));
    lanes.forEach((lane) => lane.slots.forEach((slot, place) => { slot.place = place; }));
    const whole = Math.max(data.end, data.first);
    const critical = lanes.find((lane) => lane.binds);
    let from = 0;
    let span = data.first;
    let chosen = null;
    let width = 0;

    const micro = (ticks, digits = 2) => (ticks * data.tick * 1e6).toFixed(digits);
    const x = (tick) => ((tick - from) / span) * width;
    const at = (pixel) => from + (pixel / width) * span;
    const top = (l) => TOP + l * LANE + 20;

    const bottom = TOP + lanes.length * LANE;
    const picture = make("svg", { class: "kernel-timeline", height: bottom + 46, "aria-hidden": "true" });
    const view = make("span", { class: "kernel-view" });
    const tip = tooltip(stage);

    function look(newFrom, newSpan) {
      span = Math.max(whole / MOST_ZOOM, Math.min(whole, newSpan));
      from = Math.max(0, Math.min(whole - span, newFrom));
      draw();
    }
    function zoom(factor, middle = from + span / 2) {
      const newSpan = Math.max(whole / MOST_ZOOM, Math.min(whole, span / factor));
      look(middle - ((middle - from) / span) * newSpan, newSpan);
    }
    const pan = (share) => look(from + share * span, span);

    // What was the last to let an instruction start: operands, its engine, or something else.
    function cause(slot) {
      const last = slot.after.map((n) => slots[n]).reduce((a, b) => (a && a.end >= b.end ? a : b), null);
      const lane = lanes[slot.lane];
      const before = lane.slots[slot.place - 1];
      const near = (a, b) => Math.abs(a - b) <= 2; // rounding
      const delay = lane.clock ? 0 : data.start; // a copy takes a while to start
      if (last && near(last.end + delay, slot.start)) return { slot: last, words: `its operands: #${last.number} ${data.kinds[last.kind]} on ${lanes[last.lane].name}` };
      if (before && near(before.end, slot.start)) return { slot: before, words: lane.clock ? `its engine: #${before.number} ${data.kinds[before.kind]} ran until then` : `the queues: #${before.number} was copied until then` };
      if (near(slot.start, delay)) return { slot: null, words: delay ? `nothing; a copy takes ${micro(delay, 1)} µs to start` : "nothing" };
      return { slot: last, words: lane.clock ? "a memory port that another engine held" : "room in SBUF" };
    }

    function wordsOf(slot) {
      const lane = lanes[slot.lane];
      const cycles = lane.clock ? `, ${Math.round((slot.end - slot.start) * data.tick * lane.clock)} cycles` : "";
      return [
        `#${slot.number} ${data.kinds[slot.kind]}`,
        `${lane.name}, ${micro(slot.start)} to ${micro(slot.end)} µs${cycles}`,
        data.sources[slot.source] && `line ${data.sources[slot.source]}`,
        `waited for ${cause(slot).words}`,
      ];
    }

    // Bars of one lane: too short ones that touch become one.
    function barsOf(lane) {
      const found = [];
      for (const slot of lane.slots) {
        if (slot.end < from || slot.start > from + span) continue;
        const last = found[found.length - 1];
        const [a, b] = [x(slot.start), x(slot.end)];
        if (last && b - a < MERGE && last.b - last.a < MERGE && a - last.b < 1) {
          last.b = b;
          last.slots.push(slot);
        } else {
          found.push({ a, b, slots: [slot] });
        }
      }
      return found;
    }

    function draw() {
      width = Math.max(200, picture.parentNode.clientWidth);
      picture.setAttribute("width", width);
      picture.setAttribute("viewBox", `0 0 ${width} ${bottom + 46}`);
      const parts = [];
      const faint = { fill: "currentColor", opacity: 0.7, "font-size": 11 };
      const axis = (unit, y, label, line) => { // unit: ticks of one
        const step = tickOf(span / unit, Math.max(3, width / 110));
        for (let n = Math.ceil(from / unit / step); n * step * unit <= from + span; n += 1) {
          const left = x(n * step * unit);
          if (line) parts.push(make("line", { x1: left, x2: left, y1: TOP, y2: bottom, stroke: "currentColor", "stroke-opacity": 0.12 }));
          const digits = Math.max(0, -Math.floor(Math.log10(step)));
          const number = Number((n * step).toFixed(digits)).toLocaleString("en");
          if (left + 2 + (number.length + label.length + 1) * 6.5 < width) parts.push(make("text", { x: left + 2, y, ...faint }, number));
        }
        parts.push(make("text", { x: width, y, "text-anchor": "end", ...faint }, label));
      };
      axis(1 / (critical.clock || 1e9) / data.tick, 12, critical.clock ? `cycles of ${critical.name}` : "ns", false);
      axis(1e-6 / data.tick, bottom + 14, "µs", true);
      lanes.forEach((lane, l) => {
        const y = top(l);
        const told = make("text", { x: lane.binds ? 12 : 0, y: y - 6, fill: "currentColor", "font-size": 12 },
          make("tspan", { "font-weight": 600 }, lane.name), `  ${(100 * lane.busy).toFixed(0)} % busy${lane.binds ? ", binds" : ""}`);
        if (width > 480) told.append(make("tspan", { opacity: 0.7 }, `  ·  ${lane.instructions} instruction${lane.instructions === 1 ? "" : "s"}${lane.cycles ? `, ${lane.cycles.toLocaleString("en")} cycles` : ""}`));
        if (lane.binds) parts.push(make("circle", { cx: 4, cy: y - 10, r: 4, fill: "var(--colour-1)" }));
        parts.push(told, make("rect", { x: 0, y, width, height: BAR, fill: "currentColor", "fill-opacity": 0.05 }));
        for (const { a, b, slots: own } of barsOf(lane)) {
          const most = own.reduce((one, other) => (other.end - other.start > one.end - one.start ? other : one));
          const left = Math.max(a, -2);
          const wide = Math.max(1, Math.min(b, width + 2) - left);
          parts.push(make("rect", {
            class: "kernel-slot", x: left, y, width: wide, height: BAR, "data-first": own[0].number,
            fill: colourOf(most.kind), "fill-opacity": shade(most.kind),
            stroke: wide > 5 ? "var(--edge)" : "none", "stroke-width": 1,
          }));
          const name = data.kinds[own[0].kind];
          if (own.length === 1 && wide > 6.6 * name.length + 8) {
            parts.push(make("text", { x: left + wide / 2, y: y + BAR / 2 + 4, "text-anchor": "middle", "font-size": 11, fill: "currentColor" }, name));
          }
        }
      });
      const end = x(data.end);
      if (end <= width) parts.push(make("line", { x1: end, x2: end, y1: TOP, y2: bottom, stroke: "currentColor", "stroke-dasharray": "4 3", "stroke-opacity": 0.7 }));
      if (chosen) parts.push(...marks(chosen));
      // Which part of the whole is in view.
      parts.push(make("rect", { x: 0, y: bottom + 30, width, height: 4, rx: 2, fill: "currentColor", "fill-opacity": 0.12 }),
        make("rect", { class: "kernel-part", x: (from / whole) * width, y: bottom + 30, width: Math.max(4, (span / whole) * width), height: 4, rx: 2, fill: "currentColor", "fill-opacity": 0.6 }));
      picture.replaceChildren(...parts);
      view.textContent = `${micro(from, 1)} to ${micro(from + span, 1)} of ${micro(data.end, 1)} µs`;
      smaller.setAttribute("aria-disabled", span >= whole);
      larger.setAttribute("aria-disabled", span <= whole / MOST_ZOOM);
      all.setAttribute("aria-disabled", span >= whole);
    }

    // The chosen bar, and a line from each instruction whose result it needs.
    function marks(slot) {
      const found = [];
      const why = cause(slot).slot;
      const y = top(slot.lane);
      for (const other of new Set([...slot.after.map((n) => slots[n]), ...(why ? [why] : [])])) {
        const [ax, ay, bx, by] = [x(other.end), top(other.lane) + BAR / 2, x(slot.start), y + BAR / 2];
        const bend = other.lane === slot.lane ? -26 : 0;
        if (!bend || bx - ax > 6) found.push(make("path", { class: "kernel-wait", d: `M${ax} ${ay}C${(ax + bx) / 2} ${ay + bend} ${(ax + bx) / 2} ${by + bend} ${bx} ${by}`, fill: "none", stroke: "currentColor", "stroke-width": other === why ? 1.8 : 0.9, "stroke-dasharray": other === why ? "none" : "3 3" }));
        found.push(make("rect", { x: x(other.start), y: top(other.lane), width: Math.max(2, x(other.end) - x(other.start)), height: BAR, fill: "none", stroke: "currentColor", "stroke-width": 1 }));
      }
      const wide = Math.max(3, x(slot.end) - x(slot.start));
      found.push(make("rect", { class: "kernel-chosen", x: x(slot.start), y: y - 1, width: wide, height: BAR + 2, fill: "none", stroke: "currentColor", "stroke-width": 2.4, rx: 1 }));
      return found;
    }

    function point(slot, pixel) {
      const [title, ...lines] = wordsOf(slot);
      const place = picture.getBoundingClientRect();
      const own = stage.getBoundingClientRect();
      tip.show(place.left - own.left + pixel, place.top - own.top + bottom + 4, title, ...lines);
    }

    function choose(slot) {
      chosen = slot;
      if (!slot) {
        tip.hide();
        draw();
        return;
      }
      if (slot.start < from || slot.end > from + span) look((slot.start + slot.end) / 2 - span / 2, span);
      else draw();
      point(slot, Math.max(0, Math.min(width, x((slot.start + slot.end) / 2))));
      const [title, ...lines] = wordsOf(slot);
      say(`${title}: ${lines.filter(Boolean).join("; ")}.`);
    }

    // The instruction of a lane that is nearest to a time.
    const nearest = (lane, tick) => lane.slots.reduce((best, slot) => {
      const off = Math.max(slot.start - tick, tick - slot.end, 0);
      return !best || off < best.off ? { slot, off } : best;
    }, null);
    function under(event) {
      const place = picture.getBoundingClientRect();
      const [px, py] = [event.clientX - place.left, event.clientY - place.top];
      const l = lanes.findIndex((_, n) => py >= top(n) && py <= top(n) + BAR);
      if (l < 0) return null;
      const found = nearest(lanes[l], at(px));
      return found && (found.off / span) * width <= 3 ? { slot: found.slot, px } : null;
    }

    const middle = () => chosen ?? lanes.flatMap((lane) => lane.slots).find((slot) => slot.end > from) ?? slots[0];
    const along = (by) => () => {
      const now = chosen ?? middle();
      choose(chosen ? lanes[now.lane].slots[now.place + by] ?? now : now);
    };
    const across = (by) => () => {
      const now = middle();
      const lane = lanes[now.lane + by];
      if (lane) choose(nearest(lane, (now.start + now.end) / 2).slot);
    };
    const larger = button("Zoom in (+)", "plus", () => zoom(2));
    const smaller = button("Zoom out (−)", "minus", () => zoom(0.5));
    const all = button("All of it (0)", "fit", () => look(0, whole));
    const left = button("Earlier (Shift and left arrow)", "previous", () => pan(-0.5));
    const right = button("Later (Shift and right arrow)", "next", () => pan(0.5));
    keys(stage, {
      "+": () => zoom(2),
      "=": () => zoom(2),
      "-": () => zoom(0.5),
      0: () => look(0, whole),
      ArrowLeft: along(-1),
      ArrowRight: along(1),
      ArrowUp: across(-1),
      ArrowDown: across(1),
      "Shift+ArrowLeft": () => pan(-0.25),
      "Shift+ArrowRight": () => pan(0.25),
      Home: () => choose(lanes[middle().lane].slots[0]),
      End: () => choose(lanes[middle().lane].slots.at(-1)),
      Escape: () => choose(null),
    });

    let drag = null;
    picture.addEventListener("pointerdown", (event) => {
      drag = { px: event.clientX, from, moved: false };
      picture.setPointerCapture(event.pointerId);
    });
    picture.addEventListener("pointermove", (event) => {
      if (drag) {
        if (Math.abs(event.clientX - drag.px) > 3) drag.moved = true;
        if (drag.moved) {
          tip.hide();
          look(drag.from - ((event.clientX - drag.px) / width) * span, span);
        }
        return;
      }
      const found = under(event);
      picture.style.cursor = found ? "pointer" : "";
      if (found) point(found.slot, found.px);
      else if (!chosen) tip.hide();
    });
    picture.addEventListener("pointerup", (event) => {
      const still = drag && !drag.moved;
      drag = null;
      if (still) choose(under(event)?.slot ?? null);
    });
    picture.addEventListener("pointercancel", () => { drag = null; });
    picture.addEventListener("pointerleave", () => { if (!drag && !chosen) tip.hide(); });
    picture.addEventListener("wheel", (event) => {
      if (!event.ctrlKey) return;
      event.preventDefault();
      zoom(event.deltaY < 0 ? 1.25 : 0.8, at(event.clientX - picture.getBoundingClientRect().left));
    }, { passive: false });

    const legend = make("p", { class: "kernel-legend" }, ...data.kinds.map((kind, k) =>
      make("span", {}, make("i", { style: `background:${colourOf(k)};opacity:${shade(k)}` }), kind)));
    stage.prepend(
      make("div", { class: "kernel-controls" },
        make("span", { class: "kernel-buttons" }, smaller, larger, all, left, right),
        make("span", {}, make("b", {}, data.kernel), ` on one core of ${data.chip}, estimated`), view),
      make("div", {}, picture), legend,
      make("p", { class: "kernel-hint" }, matchMedia("(pointer: coarse)").matches
        ? "Tap an instruction; drag, or take the buttons, to see others."
        : "Point at an instruction, or take the arrow keys: left and right along an engine, up and down between them."));
    say.words.classList.add("kernel-unseen"); // the tooltip says it to those who see
    draw();
    new ResizeObserver(() => { if (picture.parentNode.clientWidth !== width) draw(); }).observe(picture.parentNode);
  };
})();
