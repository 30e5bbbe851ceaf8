// The waves in which the blocks of a kernel run on a GPU, for a choice of kernels and any number of
// blocks. The places come with the page; the arithmetic is a division.
kernelPlayers.waves = (stage, data, say) => {
  const TALL = 24;
  const LEFT = 70;
  let chosen = data.start;
  let blocks = data.choices[chosen].blocks;

  const title = make("p", { class: "kernel-title" });
  const lanes = make("div", { class: "kernel-lanes" });
  const most = () => Math.max(data.choices[chosen].blocks, 4 * data.choices[chosen].places);
  const choice = make("input", { type: "range", class: "kernel-slider", min: 0, max: data.choices.length - 1, step: 1, value: chosen, "aria-label": "kernel", oninput: () => choose(Number(choice.value)) });
  const slider = make("input", { type: "range", class: "kernel-slider", min: 1, max: most(), step: 1, value: blocks, "aria-label": "blocks", oninput: () => { blocks = Number(slider.value); draw(); } });

  function choose(index) {
    chosen = index;
    blocks = data.choices[chosen].blocks;
    choice.value = index;
    slider.max = most();
    draw();
  }

  function draw() {
    const { label, places, sms, each } = data.choices[chosen];
    const waves = Math.ceil(blocks / places);
    const last = blocks - (waves - 1) * places;
    const busy = blocks / (waves * places);
    slider.value = blocks;
    choice.setAttribute("aria-valuetext", label);
    for (const [node, share] of [[slider, (blocks - 1) / (most() - 1)], [choice, data.choices.length > 1 ? chosen / (data.choices.length - 1) : 1]]) {
      node.style.setProperty("--done", `${100 * share}%`);
    }
    title.replaceChildren(make("strong", {}, label), ` ${blocks.toLocaleString("en")} blocks, ${places.toLocaleString("en")} at once (${sms} SMs, ${each} each)`);
    const width = Math.max(280, lanes.clientWidth || stage.clientWidth - 26);
    const right = width - 50;
    const shown = Math.min(data.shown, waves);
    const picture = make("svg", { viewBox: `0 0 ${width} ${shown * TALL + 4}`, width, height: shown * TALL + 4, "aria-hidden": "true", "font-size": 12 });
    for (let row = 0; row < shown; row += 1) {
      const wave = waves - shown + row; // the last ones
      const share = (wave === waves - 1 ? last : places) / places;
      const y = row * TALL;
      picture.append(
        make("text", { x: LEFT - 8, y: y + 16, "text-anchor": "end", fill: "currentColor" }, `wave ${wave + 1}`),
        make("rect", { x: LEFT, y: y + 2, width: right - LEFT, height: TALL - 6, fill: "none", stroke: "currentColor", "stroke-opacity": 0.4 }),
        make("rect", { x: LEFT, y: y + 2, width: ((right - LEFT) * share).toFixed(1), height: TALL - 6, fill: colourOf(0), "fill-opacity": 0.6 }),
        make("text", { x: right + 8, y: y + 16, fill: "currentColor" }, `${Math.round(100 * share)}%`));
    }
    lanes.replaceChildren(picture);
    say(`${waves} ${waves === 1 ? "wave" : "waves"}; if all blocks take equally long, ${(100 * busy).toFixed(0)}% of the places are taken.`, false);
  }

  stage.append(
    title,
    make("label", { class: "kernel-controls" }, make("span", {}, "kernel"), choice),
    make("label", { class: "kernel-controls" }, make("span", {}, "blocks"), slider),
    lanes,
    say.words,
  );
  draw();
  let before = stage.clientWidth;
  new ResizeObserver(() => {
    if (stage.clientWidth === before) return;
    before = stage.clientWidth;
    draw();
  }).observe(stage);
};
