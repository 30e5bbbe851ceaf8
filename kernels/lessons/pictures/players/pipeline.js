// The pipeline of a kernel in time, for a choice of blocks. Every figure comes with the page; all
// that is chosen here is which choice and which steps are drawn.
kernelPlayers.pipeline = (() => {
  const LANE = 26;
  const GAP = 8;
  const BAR = 20;
  const LEFT = 92;
  let players = 0; // names of hatchings are shared by a page

  // Three digits: 0.735, 16.2.
  const three = (value) => (value ? Number(value.toPrecision(3)).toString() : "0");

  // The next of 1, 2, 5, 10, … times a power of ten.
  function round(value) {
    const power = 10 ** Math.floor(Math.log10(value));
    return [1, 2, 5, 10].map((f) => f * power).find((each) => each >= value);
  }

  return (stage, data, say) => {
    const own = `pipeline-${(players += 1)}`;
    const hatch = (name) => `url(#${own}-${name})`;
    const patterns = (lanes) => make("defs", {}, ...[
      ...data.parts.map((part) => [part.name, part.colour, part.angle]),
      ...lanes.map((_, lane) => [`lane-${lane}`, colourOf(lane), 45]),
    ].map(([name, colour, angle]) =>
      make("pattern", { id: `${own}-${name}`, width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: `rotate(${angle})` },
        make("rect", { width: 6, height: 6, fill: colour, "fill-opacity": 0.12 }),
        make("path", { d: "M0 0V6", stroke: colour, "stroke-width": 2.4 }))));
    const part = Object.fromEntries(data.parts.map((each) => [each.name, each]));
    const micro = (cycles) => `${three(cycles / data.megahertz)} µs`;
    const told = (choice) => `${three(choice.ms)} ms${choice.band}`;
    let chosen = data.start;
    let step = 0;

    const title = make("p", { class: "kernel-title" });
    const slider = make("input", { type: "range", class: "kernel-slider", min: 0, max: data.choices.length - 1, step: 1, value: chosen, "aria-label": data.of, oninput: () => choose(Number(slider.value)) });
    const lanes = make("div", { class: "kernel-lanes" });
    const bars = make("div", {});
    const tip = tooltip(stage);
    // A choice draws the boxes within anew; what a finger asked for stays.
    lanes.addEventListener("pointerleave", (event) => { if (event.pointerType !== "touch") tip.hide(); });

    const width = () => Math.max(280, lanes.clientWidth || stage.clientWidth - 26);
    const shown = () => Math.max(3, Math.min(data.shown, Math.floor(width() / 75)));

    // One box of the picture, with its words.
    function box(x, y, wide, attributes, name, ...lines) {
      const node = make("rect", { x: x.toFixed(1), y, width: Math.max(wide, 0.6).toFixed(1), height: LANE, ...attributes });
      const tell = (event) => {
        const frame = stage.getBoundingClientRect();
        tip.show(event.clientX - frame.left, event.clientY - frame.top, name, ...lines);
      };
      node.addEventListener("pointermove", tell);
      node.addEventListener("pointerdown", tell); // a finger does not hover
      node.addEventListener("pointerleave", (event) => { if (event.pointerType !== "touch") tip.hide(); });
      return node;
    }

    function drawLanes() {
      const choice = data.choices[chosen];
      const names = [...choice.inputs, ...choice.outputs];
      const count = shown();
      const first = Math.floor(step / count) * count;
      const steps = choice.steps.slice(first, first + count);
      const from = steps[0][0];
      const to = steps[steps.length - 1][3];
      const right = width() - 8;
      const x = (cycle) => LEFT + ((Math.max(from, Math.min(to, cycle)) - from) / (to - from)) * (right - LEFT);
      const order = [...choice.inputs, null, ...choice.outputs]; // null: the core
      const y = (name) => order.indexOf(name) * (LANE + GAP);
      const bottom = order.length * (LANE + GAP);
      const picture = make("svg", { viewBox: `0 0 ${width()} ${bottom + 40}`, width: width(), height: bottom + 40, "aria-hidden": "true", "font-size": 12 }, patterns(names));
      for (const name of order) {
        const way = name === null ? "core" : `${name} → ${choice.inputs.includes(name) ? "VMEM" : "HBM"}`;
        picture.append(
          make("text", { x: LEFT - 8, y: y(name) + 17, "text-anchor": "end", fill: "currentColor" }, way),
          make("rect", { x: LEFT, y: y(name), width: right - LEFT, height: LANE, fill: "currentColor", "fill-opacity": 0.05 }));
      }
      const label = (at, wide, top, text) => {
        if (wide > 7 * text.length + 4) picture.append(make("text", { x: at + wide / 2, y: top + 17, "text-anchor": "middle", fill: "currentColor", "pointer-events": "none" }, text));
      };
      for (const [lane, of, size, start, carried, there] of choice.moves) {
        if (there <= from || start >= to) continue;
        const name = names[lane];
        const input = lane < choice.inputs.length;
        const now = of === step || (input && of === step + 1);
        const look = { opacity: now ? 1 : 0.45 };
        const words = [`${name} ${input ? "for" : "of"} step ${of}`, inBytes(size), `HBM carries it for ${micro(carried - start)}, it is there after ${micro(there - start)}`];
        picture.append(
          box(x(carried), y(name), x(there) - x(carried), { fill: hatch(`lane-${lane}`), ...look }, ...words),
          box(x(start), y(name), x(carried) - x(start), { fill: colourOf(lane), "fill-opacity": 0.75, stroke: now ? "currentColor" : "none", ...look }, ...words));
        label(x(start), x(carried) - x(start), y(name), String(of));
      }
      steps.forEach(([idle, start, products, stop], i) => {
        const of = first + i;
        const top = y(null);
        const opacity = of === step ? 1 : 0.45;
        const why = of ? part.wait : part.ends;
        if (start > idle) picture.append(box(x(idle), top, x(start) - x(idle), { fill: why.angle ? hatch(why.name) : why.colour, opacity }, `before step ${of}`, `the core waits for ${micro(start - idle)}`));
        picture.append(
          box(x(start), top, x(products) - x(start), { fill: hatch("rest"), opacity }, `step ${of}`, `${part.rest.says}: ${micro(products - start)}`),
          box(x(products), top, x(stop) - x(products), { fill: part.products.colour, "fill-opacity": 0.75, stroke: of === step ? "currentColor" : "none", opacity }, `step ${of}`, `${part.products.says}: ${micro(stop - products)}`));
        label(x(products), x(stop) - x(products), top, String(of));
      });
      const every = round((to - from) / data.megahertz / Math.max(2, (right - LEFT) / 90));
      let marks = `M${LEFT} ${bottom}H${right}`;
      for (let k = Math.ceil(from / data.megahertz / every); k * every * data.megahertz <= to; k += 1) {
        const at = x(k * every * data.megahertz);
        marks += `M${at.toFixed(1)} ${bottom}v4`;
        picture.append(make("text", { x: at, y: bottom + 17, "font-size": 11, "text-anchor": "middle", fill: "currentColor" }, Number((k * every).toPrecision(6)).toString()));
      }
      picture.append(
        make("path", { d: marks, stroke: "currentColor", "stroke-opacity": 0.5 }),
        make("text", { x: right, y: bottom + 34, "font-size": 11, "text-anchor": "end", fill: "currentColor" }, `µs on a ${data.chip}, estimated`));
      lanes.replaceChildren(picture);
    }

    function drawBars() {
      // Room for the longest words on either side, in bold: 9 pixels a character at most.
      const room = (words) => 9 * Math.max(...data.choices.map((choice) => words(choice).length)) + 16;
      const short = (choice) => `${three(choice.ms)} ms`; // its band stands above
      const end = width() - room(short);
      const tall = data.choices.length * (BAR + 5);
      const left = Math.max(LEFT + 12, room((choice) => choice.label));
      const picture = make("svg", { viewBox: `0 0 ${width()} ${tall}`, width: width(), height: tall, "aria-hidden": "true", "font-size": 12 }, patterns([]));
      data.choices.forEach((choice, index) => {
        const y = index * (BAR + 5);
        const weight = index === chosen ? 700 : 400;
        const group = make("g", { class: "kernel-choice", "font-weight": weight, onclick: () => choose(index) },
          make("rect", { x: 0, y, width: width(), height: BAR + 4, fill: "currentColor", "fill-opacity": index === chosen ? 0.07 : 0 }),
          make("text", { x: left - 8, y: y + 16, "text-anchor": "end", fill: "currentColor" }, choice.label),
          make("text", { x: end + 8, y: y + 16, fill: "currentColor" }, short(choice)));
        let at = left;
        for (const each of data.parts) {
          const wide = choice.parts[each.name] * (end - left);
          const node = box(at, y + 2, wide, { fill: each.angle ? hatch(each.name) : each.colour, "fill-opacity": each.angle ? 1 : 0.75, stroke: each.colour }, choice.label, `${each.says}: ${(100 * choice.parts[each.name]).toFixed(1)}% of the time`);
          node.setAttribute("height", BAR);
          if (wide > 0.3) group.append(node);
          at += wide;
        }
        picture.append(group);
      });
      bars.replaceChildren(picture);
    }

    // What happens in a step, in words.
    function words() {
      const choice = data.choices[chosen];
      const [idle, start, products, stop] = choice.steps[step];
      const coming = choice.moves.filter(([lane, of]) => of === step + 1 && lane < choice.inputs.length);
      const next = choice.steps[step + 1];
      const wait = start - idle;
      const said = [`Step ${step}: ${wait ? `the core waits ${micro(wait)} for its blocks, then ` : ""}works ${micro(stop - start)}, of which the products take ${micro(stop - products)} at the peak.`];
      if (coming.length) {
        const names = coming.map(([lane]) => choice.inputs[lane]).join(" and ");
        const bytes = coming.reduce((sum, each) => sum + each[2], 0);
        const there = Math.max(...coming.map((each) => each[5]));
        const spare = stop - there;
        said.push(`Meanwhile ${names} for step ${step + 1} ${coming.length > 1 ? "come" : "comes"}, ${inBytes(bytes)}, there ${spare >= 0 ? `${micro(spare)} before ${coming.length > 1 ? "they are" : "it is"} needed` : `${micro(-spare)} too late`}.`);
      } else if (next) {
        said.push(`The blocks of step ${step + 1} are in VMEM already.`);
      }
      return said.join(" ");
    }

    function choose(index) {
      chosen = index;
      slider.value = index;
      const choice = data.choices[chosen];
      slider.setAttribute("aria-valuetext", `${choice.label}: ${told(choice)}, estimated`);
      slider.style.setProperty("--done", `${data.choices.length > 1 ? (100 * index) / (data.choices.length - 1) : 100}%`);
      title.replaceChildren(
        make("strong", {}, choice.label),
        ` ${told(choice)}, estimated; ${choice.count.toLocaleString("en")} steps`,
        Math.abs(choice.laid / choice.ms - 1) > data.near ? `; ${three(choice.laid)} ms as laid out here, where each step waits for its own bytes` : "");
      title.title = choice.method;
      drawBars();
      steps.resize(choice.steps.length);
    }

    const steps = stepper(stage, {
      count: data.choices[chosen].steps.length,
      pace: 900,
      word: (index) => `step ${index}`,
      show: (index, playing) => {
        step = index;
        drawLanes();
        say(words(), playing);
      },
    });
    const legend = make("p", { class: "kernel-legend" },
      ...data.parts.map((each) => make("span", {}, make("i", { class: each.angle ? "kernel-hatched" : "", style: each.angle ? `color:${each.colour};--angle:${90 + each.angle}deg` : `background:${each.colour};opacity:0.75` }), each.says)),
      make("span", {}, make("i", { class: "kernel-full" }), "a block: HBM carries it for the step of that number"),
      make("span", {}, make("i", { class: "kernel-hatched" }), "still on its way"));
    stage.append(
      title,
      make("label", { class: "kernel-controls" }, make("span", {}, data.of), slider),
      lanes,
      steps.node,
      say.words,
      make("p", { class: "kernel-head" }, `What the time of all steps goes into, for each of the ${data.of}`),
      bars,
      legend,
    );
    choose(chosen);
    let before = width();
    new ResizeObserver(() => {
      if (width() === before) return;
      before = width();
      drawBars();
      drawLanes();
    }).observe(stage);
  };
})();
