// Step through the programs of a pallas_call, and change its blocks. What moves is counted as
// kernels.pallas.calls counts it: a block moves when it is another one than the program before had.
kernelPlayers.grid = (() => {
  const LONGEST = 150; // pixels of the longest side of an array
  const BAR = 16; // pixels beside a stack, for which plane of it is drawn
  const SHORTEST = 56; // and of the longest side of a small one beside large ones
  const MOST_LINES = 64; // between the blocks of a side
  const MOST_CELLS = 4096; // blocks whose visits are remembered
  let players = 0; // names of hatchings are shared by a page

  const ceil = (a, b) => Math.ceil(a / b);
  const product = (numbers) => numbers.reduce((a, b) => a * b, 1);
  const side = (d, rank) => (rank - d === 1 ? (rank === 1 ? "elements" : "columns") : rank - d === 2 ? "rows" : `dimension ${d}`);

  // What moves over the grid, program by program.
  function count(operands, loops) {
    const programs = product(loops.map((loop) => loop.count));
    const tallies = operands.map(() => ({
      moved: new Uint8Array(programs), total: new Float64Array(programs), times: new Uint32Array(programs),
    }));
    operands.forEach((operand, o) => {
      if (!operand.moves) return;
      const { moved, total, times } = tallies[o];
      const input = operand.role === "input";
      let before = null;
      let bytes = 0;
      let number = 0;
      for (let step = 0; step < programs; step += 1) {
        const start = startOf(operand, step, loops);
        const other = start === null || before === null || start.some((s, d) => s !== before[d]);
        if (input) {
          moved[step] = other ? 1 : 0;
        } else if (step > 0 && other) { // the one before leaves
          moved[step - 1] = 1;
        }
        if (other && input) { bytes += sizeOf(operand, start); number += 1; }
        if (other && !input && step > 0) {
          bytes += sizeOf(operand, before);
          number += 1;
          total[step - 1] = bytes;
          times[step - 1] = number;
        }
        total[step] = bytes;
        times[step] = number;
        before = start;
      }
      if (!input) {
        moved[programs - 1] = 1;
        total[programs - 1] = bytes + sizeOf(operand, before);
        times[programs - 1] = number + 1;
      }
    });
    return { programs, tallies };
  }

  // Bytes of a block, cut off where it sticks out of the array.
  const sizeOf = (operand, start) => operand.bytes * product(operand.block.map((size, d) =>
    (start === null ? size : Math.max(0, Math.min(size, operand.shape[d] - start[d])))));

  // The program ids of a step, by grid dimension; loops: from the outermost to the innermost.
  function idsOf(step, loops) {
    const ids = new Array(loops.length);
    for (let i = loops.length - 1; i >= 0; i -= 1) {
      ids[loops[i].axis] = step % loops[i].count;
      step = Math.floor(step / loops[i].count);
    }
    return ids;
  }

  // The first element of a program's block; null where only the run knows.
  function startOf(operand, step, loops) {
    if (operand.starts) return operand.starts.map((s) => (typeof s === "number" ? s : s[step]));
    if (!operand.offset) return null;
    const ids = idsOf(step, loops);
    return operand.offset.map((from, d) =>
      operand.unit[d] * operand.steps[d].reduce((sum, by, a) => sum + by * ids[a], from));
  }

  // The index map in symbols, (i, 0); null where it is a constant.
  function mapOf(operand, axes) {
    if (!operand.offset || !operand.steps.flat().some(Boolean)) return null;
    const terms = operand.offset.map((from, d) => {
      const told = operand.steps[d].map((by, a) => (by ? `${by === 1 ? "" : `${by}·`}${axes[a].name}` : "")).filter(Boolean);
      if (from || !told.length) told.push(String(from));
      return told.join(" + ").replace("+ -", "− ").replace(/^-/, "−");
    });
    return `(${terms.join(", ")}${terms.length === 1 ? "," : ""})`;
  }

  // Where a TPU could not tile the blocks: the last dimension in 128s, the one before it in 8s.
  function untiled(operand) {
    const rank = operand.shape.length;
    if (operand.memory !== "vmem" || rank < 2) return null;
    for (const [d, tile] of [[rank - 1, 128], [rank - 2, 8]]) {
      if (operand.block[d] % tile && operand.block[d] !== operand.shape[d]) {
        return `A TPU cannot tile ${operand.name}: ${operand.block[d]} ${side(d, rank)} in a block, where it takes a multiple of ${tile}, or all ${operand.shape[d]}.`;
      }
    }
    return null;
  }

  // One operand: its array, cut into blocks, with the block of the program.
  function card(operand, o, scale, hatch) {
    const rank = operand.shape.length;
    const [rows, columns] = rank > 1 ? operand.shape.slice(-2) : [1, operand.shape[0] ?? 1];
    const [blockRows, blockColumns] = rank > 1 ? operand.block.slice(-2) : [1, operand.block[0] ?? 1];
    const leading = operand.shape.slice(0, -2);
    const planes = product(leading);
    const own = Math.max(scale, SHORTEST / Math.max(rows, columns));
    const width = Math.max(18, columns * own);
    const height = Math.max(18, rows * own);
    const bar = planes > 1 ? BAR : 0;
    const down = ceil(rows, blockRows);
    const across = ceil(columns, blockColumns);
    const x = (c) => bar + (c / columns) * width;
    const y = (r) => (r / rows) * height;
    let lines = "";
    if (across <= MOST_LINES) for (let c = 1; c < across; c += 1) lines += `M${x(c * blockColumns)} 0V${height}`;
    if (down <= MOST_LINES) for (let r = 1; r < down; r += 1) lines += `M${bar} ${y(r * blockRows)}H${bar + width}`;
    const finest = Math.min(across > 1 ? width / across : width, down > 1 ? height / down : height);
    const visited = make("path", { fill: colourOf(o), "fill-opacity": 0.16 });
    const counts = make("g", { "font-size": 10, "text-anchor": "middle", fill: "currentColor", opacity: 0.75 });
    const block = make("rect", { class: "kernel-moves", stroke: colourOf(o), "stroke-width": 1.6 });
    const plane = make("rect", { x: 0, width: 8, fill: colourOf(o), "fill-opacity": 0.7 });
    const tall = Math.max(height, 28);
    const picture = make("svg", { viewBox: `-1 -1 ${bar + width + 2} ${Math.max(height, bar ? tall : 0) + 2}`, width: bar + width + 2, height: Math.max(height, bar ? tall : 0) + 2, "aria-hidden": "true" },
      make("defs", {}, make("pattern", { id: hatch, width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
        make("rect", { width: 6, height: 6, fill: colourOf(o), "fill-opacity": 0.12 }),
        make("path", { d: "M0 0V6", stroke: colourOf(o), "stroke-width": 2.2, "stroke-opacity": 0.75 }))),
      visited,
      make("path", { d: lines, stroke: "currentColor", "stroke-opacity": Math.min(0.22, finest / 60), fill: "none" }),
      make("rect", { x: bar, y: 0, width, height, fill: "none", stroke: "currentColor", "stroke-opacity": 0.65 }),
      block, counts);
    if (bar) picture.append(plane, make("rect", { x: 0, y: 0, width: 8, height: tall, fill: "none", stroke: "currentColor", "stroke-opacity": 0.4 }));
    const state = make("span", { class: "kernel-state" });
    const place = make("span", { class: "kernel-dim" });
    const tally = make("span", {});
    const times = make("span", {});
    const node = make("div", { class: "kernel-card" },
      make("div", {},
        make("span", { class: "kernel-name" }, make("i", { style: `background:${colourOf(o)}` }), operand.name, make("small", {}, operand.role)),
        make("span", { class: "kernel-dim" }, `${operand.dtype} [${operand.shape.join(", ")}]`),
        make("span", { class: "kernel-dim" }, operand.block.every((b, d) => b === operand.shape[d]) ? "all of it in one block" : `blocks of [${operand.block.join(", ")}]`)),
      picture, place, state, tally, times);

    const cells = planes * down * across <= MOST_CELLS ? new Uint32Array(planes * down * across) : null;
    const ratios = operand.shape.map((size, d) => ceil(size, operand.block[d]));
    const cellOf = (start) => start.reduce((cell, s, d) => {
      if (d < rank - 2) return cell * leading[d] + Math.min(s, leading[d] - 1);
      return cell * ratios[d] + Math.floor(s / operand.block[d]);
    }, 0);
    let seen = -1; // steps that `cells` has counted

    return {
      node,
      draw(step, loops, axes, tallied, programs) {
        const start = startOf(operand, step, loops);
        const moves = tallied.moved[step] === 1;
        const map = mapOf(operand, axes);
        if (start === null) {
          block.setAttribute("visibility", "hidden");
          place.textContent = "which block, only the run knows";
        } else {
          const [r, c] = rank > 1 ? start.slice(-2) : [0, start[0] ?? 0];
          const inside = (from, size, all) => Math.max(0, Math.min(size, all - from));
          const w = Math.max(3, (inside(c, blockColumns, columns) / columns) * width);
          const h = Math.max(3, (inside(r, blockRows, rows) / rows) * height);
          block.setAttribute("visibility", r < rows && c < columns && r >= 0 && c >= 0 ? "visible" : "hidden");
          block.setAttribute("x", Math.min(x(c), bar + width - w));
          block.setAttribute("y", Math.min(y(r), height - h));
          block.setAttribute("width", w);
          block.setAttribute("height", h);
          block.setAttribute("fill", moves ? colourOf(o) : operand.moves ? `url(#${hatch})` : "none");
          block.setAttribute("fill-opacity", moves ? 0.72 : 1);
          const units = start.map((s, d) => s / (operand.unit ?? operand.block)[d]);
          place.textContent = rank ? `block ${map ? `${map} = ` : ""}(${units.map((u) => (Number.isInteger(u) ? u : u.toFixed(2))).join(", ")}${rank === 1 ? "," : ""})` : "one number";
          if (cells) this.visits(step, loops, tallied, start);
          if (bar) {
            const first = start.slice(0, -2).reduce((at, s, d) => at * leading[d] + s, 0);
            const deep = product(operand.block.slice(0, -2));
            plane.setAttribute("y", (Math.min(first, planes - 1) / planes) * tall);
            plane.setAttribute("height", Math.max(2, (Math.min(deep, planes) / planes) * tall));
          }
        }
        const input = operand.role === "input";
        const words = !operand.moves ? `left in ${operand.memory.toUpperCase()}` : moves ? (input ? "fetched" : "written back") : "kept";
        state.textContent = words;
        state.className = `kernel-state kernel-${moves ? "moves-now" : "stays"}`;
        state.style.setProperty("--own", colourOf(o));
        const last = programs - 1;
        tally.textContent = !operand.moves ? "moved by the kernel itself" : `${inBytes(tallied.total[step])} of ${inBytes(tallied.total[last])}`;
        tally.title = operand.moves ? `${tallied.total[step]} of ${tallied.total[last]} bytes` : "";
        times.textContent = operand.moves ? `${tallied.times[step]} of ${tallied.times[last]} blocks` : "";
        return words;
      },
      // Shade what has moved so far, and say how often where that is more than once.
      visits(step, loops, tallied, now) {
        if (step < seen) { cells.fill(0); seen = -1; }
        for (let s = seen + 1; s <= step; s += 1) {
          if (tallied.moved[s]) {
            const cell = cellOf(startOf(operand, s, loops));
            if (cell >= 0 && cell < cells.length) cells[cell] += 1;
          }
        }
        seen = step;
        const first = now.slice(0, -2).reduce((at, s, d) => at * leading[d] + Math.min(s, leading[d] - 1), 0) * down * across;
        let shade = "";
        const told = [];
        const w = (blockColumns / columns) * width;
        const h = (blockRows / rows) * height;
        for (let cell = 0; cell < down * across; cell += 1) {
          const times = cells[first + cell];
          if (!times) continue;
          const left = x((cell % across) * blockColumns);
          const top = y(Math.floor(cell / across) * blockRows);
          const right = Math.min(left + w, bar + width);
          const bottom = Math.min(top + h, height);
          shade += `M${left} ${top}H${right}V${bottom}H${left}z`;
          if (times > 1 && w > 22 && h > 13) told.push(make("text", { x: (left + right) / 2, y: (top + bottom) / 2 + 3.5 }, `×${times}`));
        }
        visited.setAttribute("d", shade);
        counts.replaceChildren(...told);
      },
    };
  }

  return (stage, data, say) => {
    const player = (players += 1);
    const axes = data.axes.map((axis, number) => ({ ...axis, axis: number }));
    const operands = data.operands.map((operand) => ({ ...operand, block: [...operand.block], unit: operand.unit && [...operand.unit] }));
    let loops = [...axes];
    let changed = false;
    const shownOf = (programs) => (data.fixed ? Math.min(data.shown, programs) : programs);
    let tally = null;
    let cards = [];

    const nest = make("div", { class: "kernel-nest" });
    const whole = make("details", { class: "kernel-whole" });
    const remarks = make("ul", { class: "kernel-remarks" });
    const spoken = make("div", { role: "status", "aria-live": "polite" }, remarks);
    const row = make("div", { class: "kernel-cards" });
    const sum = make("p", { class: "kernel-sum" });
    const floors = make("div", { class: "kernel-floors" });
    const values = new Map(); // of each loop's variable, in the nest

    const complain = (text) => remark(text ? [text] : []);
    function remark(first = []) {
      const told = [...first];
      if (data.fixed) told.push(data.fixed);
      if (data.shown < data.programs) told.push(`The first ${data.shown} of ${data.programs} programs.`);
      if (data.machine === "gpu") told.push("On a GPU the programs run at the same time; the order is one of many.");
      if (changed && data.machine === "tpu") told.push(...operands.map(untiled).filter(Boolean));
      operands.forEach((operand, o) => {
        if (!operand.moves || !operand.offset || data.shown < data.programs) return;
        const blocks = new Set();
        for (let s = 0; s < tally.programs; s += 1) {
          if (tally.tallies[o].moved[s]) blocks.add(startOf(operand, s, loops).join());
        }
        const input = operand.role === "input";
        const times = tally.tallies[o].times[tally.programs - 1];
        const all = product(operand.shape.map((size, d) => ceil(size, operand.block[d])));
        if (!input && times > blocks.size) told.push(`${operand.name} leaves ${times} times, for ${blocks.size} blocks: a block that comes back does not bring along what it held. A kernel that collects a sum in it, or in scratch memory, is wrong in this order.`);
        if (blocks.size < all) told.push(`${all - blocks.size} of ${all} blocks of ${operand.name} are ${input ? "read" : "written"} by no program.`);
      });
      remarks.replaceChildren(...told.map((text) => make("li", {}, text)));
    }

    // Cut the dimensions that follow `axis` into blocks of `size`; what is wrong with that, if anything.
    function cut(axis, size) {
      const [head] = axis.cuts;
      const own = operands[head[0]].block[head[1]];
      const count = ceil(operands[head[0]].shape[head[1]], size);
      const others = product(axes.map((a) => (a === axis ? 1 : a.count)));
      if (count * others > data.most) return `block of ${axis.name} is ${size}, which makes ${count * others} programs; accepted: blocks that make at most ${data.most}`;
      for (const [o, d] of axis.cuts) {
        if (!Number.isInteger((operands[o].block[d] * size) / own)) {
          return `block of ${axis.name} is ${size}; accepted: a size that cuts ${operands[o].name}, whose blocks are ${operands[o].block[d]} where these are ${own}, as well`;
        }
      }
      for (const [o, d] of axis.cuts) {
        operands[o].block[d] = (operands[o].block[d] * size) / own;
        operands[o].unit[d] = operands[o].block[d];
      }
      axis.count = count;
      changed = true;
      return null;
    }

    // The dimensions of which a program sees only what one block holds, since no loop cuts them.
    function drawWhole() {
      const cuts = new Set(axes.flatMap((axis) => axis.cuts.map((at) => at.join())));
      const fields = operands.flatMap((operand, o) => operand.shape.flatMap((size, d) => {
        if (data.fixed || cuts.has(`${o},${d}`) || size === 1) return [];
        const word = `${side(d, operand.shape.length)} of ${operand.name}`;
        return make("label", {}, `${word} `, field(`block of the ${word}`, operand.block[d], size, (to) => {
          operand.block[d] = to;
          operand.unit[d] = to;
          changed = true;
          build();
        }, complain), ` of ${size}`);
      }));
      whole.hidden = !fields.length;
      whole.replaceChildren(make("summary", {}, "Dimensions that no loop cuts"), make("div", {}, ...fields));
    }

    function redo(wrong, told = []) {
      if (wrong) return wrong;
      build(told);
      return null;
    }

    // A line for each loop, as the code that a TPU's core runs.
    function drawNest() {
      values.clear();
      nest.replaceChildren(...loops.map((axis, depth) => {
        const [head] = axis.cuts;
        const size = head && operands[head[0]].shape[head[1]];
        const block = head && operands[head[0]].block[head[1]];
        const open = !data.fixed && !axis.fixed;
        const value = make("b", { class: "kernel-value" });
        values.set(axis, value);
        const line = make("div", { class: "kernel-loop", style: `--depth:${depth}` });
        const number = open
          ? field(`blocks along ${axis.name}`, axis.count, head ? size : data.most, (count) => {
            if (!head) {
              const all = count * product(axes.map((a) => (a === axis ? 1 : a.count)));
              if (all > data.most) return `programs along ${axis.name} are ${count}, ${all} in all; accepted: at most ${data.most} in all`;
              axis.count = count;
              changed = true;
              return redo(null);
            }
            const wrong = cut(axis, ceil(size, count));
            return redo(wrong, axis.count === count ? [] : [`No ${count} blocks of one size cover ${size}: ${axis.count} blocks of ${ceil(size, count)} do.`]);
          }, complain)
          : make("b", {}, String(axis.count));
        line.append(
          make("span", { class: "kernel-code" }, "for ", make("b", {}, axis.name), " in range(", number, ")"),
          make("span", { class: "kernel-now" }, `${axis.name} = `, value));
        if (depth > 0 && !data.fixed) {
          line.append(button(`Move the loop over ${axis.name} one outwards`, "up", () => {
            loops.splice(depth - 1, 2, axis, loops[depth - 1]);
            changed = true;
            build();
            (nest.children[depth - 1].querySelector("button") ?? stage).focus();
          }));
        }
        if (head) {
          const sides = new Map(); // "rows" → operands whose rows this loop cuts
          for (const [o, d] of axis.cuts) {
            const word = side(d, operands[o].shape.length);
            sides.set(word, [...(sides.get(word) ?? []), operands[o].name]);
          }
          const followers = [...sides].map(([word, names]) => `${word} of ${names.join(", ")}`).join("; ");
          line.append(make("span", { class: "kernel-cut" }, "block ",
            open ? field(`block of ${axis.name}`, block, size, (to) => redo(cut(axis, to)), complain) : make("b", {}, String(block)),
            ` of ${size}`, make("small", {}, followers)));
        } else {
          line.append(make("span", { class: "kernel-cut" }, make("small", {}, data.fixed ? "" : "no block follows")));
        }
        if (axis.fixed && !data.fixed) line.append(make("small", {}, axis.fixed));
        return line;
      }));
    }

    function build(told) {
      const focused = document.activeElement?.getAttribute?.("aria-label");
      const inside = [nest, whole].some((part) => part.contains(document.activeElement));
      const known = { programs: shownOf(product(loops.map((loop) => loop.count))) };
      tally = data.fixed ? recorded(known.programs) : count(operands, loops);
      const sides = operands.flatMap((operand) => (operand.shape.length ? operand.shape.slice(-2) : [1]));
      const bar = operands.some((operand) => product(operand.shape.slice(0, -2)) > 1) ? BAR : 0;
      const scale = (LONGEST - bar) / Math.max(...sides);
      cards = operands.map((operand, o) => card(operand, o, scale, `hatch-play-${player}-${o}`));
      row.replaceChildren(...cards.map((each) => each.node));
      drawNest();
      drawWhole();
      if (inside) [...stage.querySelectorAll(".kernel-field")].find((node) => node.getAttribute("aria-label") === focused)?.focus();
      reset.hidden = !changed;
      const common = new Set(axes.filter((axis) => axis.cuts.length).map((axis) => operands[axis.cuts[0][0]].block[axis.cuts[0][1]]));
      for (const node of sizes.children) node.setAttribute("aria-pressed", common.size === 1 && common.has(Number(node.textContent)));
      drawFloors();
      remark(told);
      steps.resize(tally.programs);
    }

    // Recorded blocks may be fewer than the grid has programs: count those that are there.
    function recorded(programs) {
      const short = [{ axis: 0, count: programs }];
      const whole = operands.map((operand) => ({
        ...operand,
        offset: undefined,
        starts: operand.starts ?? (operand.offset && Array.from({ length: operand.shape.length }, (_, d) =>
          Array.from({ length: programs }, (__, s) => startOf(operand, s, loops)[d]))),
      }));
      return count(whole, short);
    }

    // What a chip allows: the blocks' share of VMEM, and the time that no schedule of this grid beats.
    function drawFloors() {
      const { chip } = data;
      const last = tally.programs - 1;
      const held = operands.map((operand, o) => (operand.memory !== "vmem" ? 0
        : product(operand.block) * operand.bytes * (tally.tallies[o].times[last] > 1 ? 2 : 1)));
      floors.hidden = data.machine !== "tpu" || !held.some(Boolean);
      if (floors.hidden) return;
      const all = held.reduce((a, b) => a + b, 0);
      const granted = chip.vmem_limit_bytes;
      const state = all > chip.vmem_bytes ? "more than there is" : all > granted ? "more than is granted" : "";
      const end = Math.max(all, chip.vmem_bytes);
      const bar = make("span", { class: "kernel-meter", "aria-hidden": "true" },
        make("i", { class: state ? "kernel-over" : "", style: `width:${(100 * all) / end}%` }),
        make("i", { class: "kernel-mark", style: `left:${(100 * granted) / end}%` }));
      const ms = (seconds) => `${(1e3 * seconds).toPrecision(3)} ms`;
      const bytes = tally.tallies.reduce((sum, each) => sum + each.total[last], 0);
      const moving = bytes / chip.hbm_bytes_per_second;
      const words = [`Moving ${inBytes(bytes)} takes a ${chip.name} ${ms(moving)}`];
      if (data.work) {
        // Before the first product and after the last one nothing overlaps.
        const alone = operands.reduce((sum, operand, o) => {
          const { total } = tally.tallies[o];
          return sum + (!operand.moves ? 0 : operand.role === "input" ? total[0] : total[last] - (last ? total[last - 1] : 0));
        }, 0) / chip.hbm_bytes_per_second;
        const products = data.work / chip.bf16_flops;
        words.push(`, the products ${ms(products)}, and ${ms(alone)} of moving overlap with nothing: `,
          make("b", {}, `${ms(alone + Math.max(products, moving - alone))} at best`));
      }
      floors.replaceChildren(
        make("p", {}, `The blocks take ${inBytes(all)} of VMEM, two buffers for each that moves more than once`, state ? `: ${state}` : "", `. A ${chip.name} grants a kernel ${inBytes(granted)} unless it asks for more, and has ${inBytes(chip.vmem_bytes)}.`),
        bar, make("p", {}, ...words, "."));
    }

    function show(step, playing) {
      const ids = idsOf(step, loops);
      loops.forEach((axis) => { values.get(axis).textContent = ids[axis.axis]; });
      const words = cards.map((each, o) => `${operands[o].name} ${each.draw(step, loops, axes, tally.tallies[o], tally.programs)}`);
      const name = loops.length ? `(${loops.map((a) => a.name).join(", ")}${loops.length === 1 ? "," : ""}) = (${loops.map((a) => ids[a.axis]).join(", ")}${loops.length === 1 ? "," : ""})` : "the only one";
      const last = tally.programs - 1;
      const total = (at) => tally.tallies.reduce((all, each) => all + each.total[at], 0);
      sum.replaceChildren(make("b", {}, inBytes(total(step))), " moved so far, ", make("b", {}, inBytes(total(last))), " over the grid.");
      say(`Program ${step + 1} of ${tally.programs}, ${name}: ${words.join(", ")}.`, playing);
    }

    const steps = stepper(stage, { count: 1, show, word: (step) => `program ${step + 1}` });
    const reset = button("Back to the kernel's own blocks", "reset", () => {
      data.axes.forEach((axis, a) => { axes[a].count = axis.count; });
      data.operands.forEach((operand, o) => {
        operands[o].block = [...operand.block];
        operands[o].unit = operand.unit && [...operand.unit];
      });
      loops = [...axes];
      changed = false;
      build();
      stage.focus();
    });
    reset.append("reset");
    const legend = make("p", { class: "kernel-legend" },
      make("span", {}, make("i", { class: "kernel-full" }), "moves: fetched before the program, or written back after it"),
      make("span", {}, make("i", { class: "kernel-hatched" }), "kept in fast memory"),
      make("span", {}, make("i", { class: "kernel-tinted" }), "has moved; ×2: twice"));
    steps.node.append(reset);
    // Where a page asks for one control only, the rest unfolds.
    const sizes = make("p", { class: "kernel-sizes" });
    if (data.sizes) {
      sizes.append("Blocks of ", ...data.sizes.map((size) => make("button", {
        type: "button",
        class: "kernel-size",
        onclick: () => {
          axes.forEach((axis) => { if (axis.cuts.length) cut(axis, size); });
          build();
        },
      }, `${size}`)));
    }
    const rest = data.sizes ? make("details", { class: "kernel-whole" }, make("summary", {}, "Change everything"), nest, whole) : null;
    stage.append(steps.node, say.words, ...(rest ? [sizes, rest] : [nest, whole]), row, sum, floors, legend, spoken);
    build();
  };
})();
