// The bundles of a kernel, to zoom into, and what stands in each. A column is a bundle, or the mean
// of as many as it takes.
kernelPlayers.schedule = (() => {
  const ROW = 20;
  const TOP = 22;
  const CELL = 3.5; // pixels of the narrowest column
  const WIDEST = 26;
  const LEVELS = 8; // shades of a slot that is not empty
  const LEAST = 16; // bundles that a zoom shows

  const shade = (share) => 0.2 + 0.8 * share; // the lowest is still seen on black

  return (stage, data, say) => {
    // Each bundle is two letters, which number a distinct one.
    const place = new Map([...data.letters].map((letter, i) => [letter, i]));
    const base = data.letters.length;
    const numberAt = (letters, at) => place.get(letters[at]) * base + place.get(letters[at + 1]);
    const count = data.order.length / 2;
    const kind = Uint16Array.from({ length: count }, (_, i) => numberAt(data.order, 2 * i));
    const slots = data.slots.length;
    const rows = data.held.map((digits) => Array.from(digits, Number));
    const held = data.kinds.map((letters) => rows[numberAt(letters, 0)]);

    // The names of a bundle's operations: two letters number one, and one tells how many there are.
    function names(i) {
      const letters = data.kinds[kind[i]];
      const told = [];
      for (let at = 2; at < letters.length; at += 3) {
        const name = data.names[numberAt(letters, at)];
        const many = place.get(letters[at + 2]);
        told.push(many > 1 ? `${name} ×${many}` : name);
      }
      return told.join("; ");
    }

    const depth = new Uint8Array(count);
    for (const [first, last, deep] of data.loops) depth.fill(deep, first, last);
    const number = (n) => n.toLocaleString("en");
    const heat = make("div", { class: "kernel-heat" });
    const code = make("p", { class: "kernel-bundle kernel-code" });
    const tip = tooltip(stage);
    heat.addEventListener("pointerleave", tip.hide); // a click draws the picture within anew
    let at = data.loops.length ? data.loops[0][0] : 0; // the bundle of the cursor
    let from = 0;
    let seen = count; // bundles that are shown, from `from` on

    const width = () => Math.max(280, heat.clientWidth || stage.clientWidth - 26);
    const left = () => (width() > 420 ? 180 : 112);
    const columns = () => Math.max(1, Math.min(seen, Math.floor((width() - left()) / CELL)));
    const start = (column) => from + Math.floor((column * seen) / columns());
    const stop = (column) => Math.max(start(column) + 1, start(column + 1));
    const chosen = () => Math.min(columns() - 1, Math.floor(((at - from + 0.5) / seen) * columns()));

    // Of a range of bundles: the share of each slot that is full.
    function shares(first, last) {
      const sums = new Array(slots).fill(0);
      for (let i = first; i < last; i += 1) held[kind[i]].forEach((n, s) => { sums[s] += n; });
      return sums.map((n, s) => n / (data.capacity[s] || 1) / (last - first));
    }

    function draw() {
      const across = columns();
      const x0 = left();
      const wide = Math.min((width() - x0) / across, WIDEST);
      const cells = Array.from({ length: LEVELS + 1 }, () => []);
      for (let column = 0; column < across; column += 1) {
        shares(start(column), stop(column)).forEach((share, slot) => {
          if (share) cells[Math.max(1, Math.round(share * LEVELS))].push(`M${(x0 + column * wide).toFixed(1)} ${TOP + slot * ROW}h${(wide + (wide < 8 ? 0.2 : -1)).toFixed(1)}v${ROW - 2}h${(-wide - (wide < 8 ? 0.2 : -1)).toFixed(1)}z`);
        });
      }
      const end = x0 + wide * across;
      const bottom = TOP + slots * ROW;
      const picture = make("svg", { viewBox: `0 0 ${width()} ${bottom + 24}`, width: width(), height: bottom + 24, "aria-hidden": "true", "font-size": 12 });
      data.slots.forEach((slot, s) => {
        const words = x0 > 150 ? slot : slot.replace("MXU and XLU results", "results").replace("vector ", "");
        picture.append(
          make("text", { x: x0 - 8, y: TOP + s * ROW + 14, "text-anchor": "end", fill: "currentColor" }, `${words}  ${Math.round(100 * data.inside[s])}%`),
          make("rect", { x: x0, y: TOP + s * ROW, width: end - x0, height: ROW - 2, fill: "currentColor", "fill-opacity": 0.05 }));
      });
      cells.forEach((path, level) => {
        if (path.length) picture.append(make("path", { d: path.join(""), fill: colourOf(0), opacity: shade(level / LEVELS) }));
      });
      const scale = (end - x0) / seen;
      for (const [first, last, deep] of data.loops) {
        const a = x0 + Math.max(0, first - from) * scale;
        const b = x0 + Math.min(seen, last - from) * scale;
        if (b - a > 2) picture.append(make("path", { d: `M${a.toFixed(1)} ${TOP - 4 - 4 * (deep - 1)}v-4H${b.toFixed(1)}v4`, fill: "none", stroke: "currentColor", "stroke-opacity": 0.6 }));
      }
      picture.append(
        make("path", { d: `M${x0} ${bottom}H${end}`, stroke: "currentColor", "stroke-opacity": 0.5 }),
        make("text", { x: x0, y: bottom + 17, "font-size": 11, fill: "currentColor" }, `bundle ${number(from)}`),
        make("text", { x: end, y: bottom + 17, "font-size": 11, "text-anchor": end - x0 > 120 ? "end" : "start", fill: "currentColor" }, number(from + seen - 1)));
      picture.append(make("rect", { x: x0 + chosen() * wide - 1, y: TOP - 3, width: wide + 2, height: slots * ROW + 4, rx: 2, fill: "none", stroke: "currentColor", "stroke-width": 2 }));
      const columnAt = (event) => {
        const frame = picture.getBoundingClientRect();
        const column = Math.floor((event.clientX - frame.left - x0) / wide);
        return event.clientX - frame.left < x0 || column >= across ? -1 : column;
      };
      picture.addEventListener("pointermove", (event) => {
        const column = columnAt(event);
        if (column < 0) return tip.hide();
        const first = start(column);
        const last = stop(column);
        const frame = stage.getBoundingClientRect();
        tip.show(event.clientX - frame.left, event.clientY - frame.top, range(first, last), fullest(first, last), last - first === 1 ? names(first) : "");
      });
      picture.addEventListener("click", (event) => {
        const column = columnAt(event);
        if (column >= 0) move(start(column));
      });
      heat.replaceChildren(picture);
    }

    const range = (first, last) => (last - first === 1 ? `bundle ${number(first)}` : `bundles ${number(first)} to ${number(last - 1)}`);

    // What holds something, in words: counts for a bundle, shares for several.
    function fullest(first, last) {
      if (last - first === 1) {
        const told = held[kind[first]].map((n, s) => (n ? `${data.slots[s]} ${n} of ${data.capacity[s]}` : "")).filter(Boolean);
        return told.join(", ") || "no operation";
      }
      const told = shares(first, last).map((share, s) => [share, s]).filter(([share]) => share > 0.005).sort((a, b) => b[0] - a[0]);
      return told.slice(0, 5).map(([share, s]) => `${data.slots[s]} ${Math.round(100 * share)}%`).join(", ") || "empty";
    }

    function tell() {
      const [first, last] = [start(chosen()), stop(chosen())];
      const loop = depth[at] ? `in ${depth[at] > 1 ? `${depth[at]} loops` : "the loop"}` : "outside the loop";
      const said = `${range(first, last)}, ${loop}: ${fullest(first, last)}.`;
      say(said[0].toUpperCase() + said.slice(1));
      const text = data.text[at - data.first] || names(at);
      code.hidden = !data.text.length && !data.names.length;
      code.textContent = last - first === 1 || !text ? text : `${number(at)}: ${text}`;
    }

    function show() {
      slider.value = at;
      slider.setAttribute("aria-valuetext", `bundle ${number(at)}`);
      slider.style.setProperty("--done", `${count > 1 ? (100 * at) / (count - 1) : 100}%`);
      plus.setAttribute("aria-disabled", seen <= Math.min(LEAST, count));
      for (const node of [minus, fit]) node.setAttribute("aria-disabled", seen === count);
      draw();
      tell();
    }

    function move(to) {
      at = Math.max(0, Math.min(count - 1, to));
      if (at < from || at >= from + seen) from = Math.max(0, Math.min(count - seen, at - Math.floor(seen / 2)));
      show();
    }

    function zoom(wanted) {
      const share = (at - from) / seen;
      seen = Math.max(Math.min(LEAST, count), Math.min(count, Math.round(wanted)));
      from = Math.max(0, Math.min(count - seen, Math.round(at - share * seen)));
      show();
    }

    // One column on, or a screenful of them.
    const pace = () => Math.max(1, Math.round(seen / columns()));
    const minus = button("Zoom out (−)", "minus", () => zoom(seen * 4));
    const plus = button("Zoom in (+)", "plus", () => zoom(seen / 4));
    const fit = button("All bundles (0)", "fit", () => zoom(count));
    const slider = make("input", { type: "range", class: "kernel-slider", min: 0, max: count - 1, step: 1, value: at, "aria-label": "bundle", oninput: () => move(Number(slider.value)) });
    keys(stage, {
      ArrowLeft: () => move(at - pace()),
      ArrowRight: () => move(at + pace()),
      "Shift+ArrowLeft": () => move(at - 10 * pace()),
      "Shift+ArrowRight": () => move(at + 10 * pace()),
      Home: () => move(0),
      End: () => move(count - 1),
      "+": () => zoom(seen / 4),
      "=": () => zoom(seen / 4),
      "-": () => zoom(seen * 4),
      0: () => zoom(count),
    });
    const roof = make("div", { class: "kernel-roof" });
    roof.innerHTML = data.roof; // an SVG of kernels.pictures
    const cut = count < data.bundles ? ` (the first ${number(count)} can be looked at)` : "";
    stage.append(
      make("p", { class: "kernel-title" }, make("strong", {}, data.name), ` ${number(data.bundles)} bundles${cut} on a ${data.chip}`),
      make("div", { class: "kernel-beside" },
        make("div", { class: "kernel-bundles" },
          heat,
          make("div", { class: "kernel-controls" }, make("span", { class: "kernel-buttons" }, minus, plus, fit), slider),
          say.words,
          code),
        make("div", {}, roof, make("p", {}, `${data.place}.`))),
      make("p", { class: "kernel-legend" },
        make("span", {}, make("i", { style: `background:${colourOf(0)}` }), "all of the slots full"),
        make("span", {}, make("i", { style: `background:${colourOf(0)};opacity:${shade(0.25)}` }), "a quarter"),
        make("span", {}, "bracket: a loop; per cent: inside it; a bundle takes a cycle or more")));
    show();
    let before = width();
    new ResizeObserver(() => {
      if (width() === before) return;
      before = width();
      show();
    }).observe(stage);
  };
})();
