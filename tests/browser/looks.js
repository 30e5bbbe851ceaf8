// What tests/browser/test_pages.py asks of a page.
({
    // The theme lets keys reach what scrolls 0.3 s after a change of width, or of what the page
    // holds; two frames on it began.
    themeBegins() {
        const then = (done) => requestAnimationFrame(
            () => requestAnimationFrame(() => setTimeout(done, 320)));
        window.themed = new Promise(then);
    },

    async examined() {
        await window.themed;
        const rules = {region: {enabled: false}};  // slow, and of no serious impact
        return (await axe.run({preload: false, resultTypes: ["violations"], rules})).violations;
    },

    // Leaves out what axe-core would find again. One of each kind is enough of thousands: of the
    // tokens of code, whose colours depend on it, and of what stands in one kind of place and differs
    // but in its words. What is inside goes first, so that its surroundings differ less. Buttons and
    // boxes stay: what scrolls has to be reached by keys; and links of headings, which the theme lights
    // up where a page has no contents. What is drawn in a picture or formula is of no kind.
    thin() {
        const seen = new Set(), places = new Map([[document, ""]]);
        const again = (...kind) => seen.size == seen.add(kind.join("|")).size;
        const alike = (html) => html.replace(/(^|>)[^<]+/g, "$1word")
            .replace(/ (href|id|title)="[^"]+"/g, " $1");
        const place = (node) => places.get(node) ?? places.set(
            node, place(node.parentNode) + alike(node.cloneNode().outerHTML)).get(node);
        const drawn = ":is(svg, math)", reached = ":is(a, [role], [tabindex], foreignObject)";
        for (const stroke of document.querySelectorAll(
            `${drawn} :not(title, desc, ${reached}, ${drawn} ${reached} *, :has(${reached}))`))
            stroke.remove();
        for (const token of document.querySelectorAll(".highlight span")) {
            const where = token.closest(".cell_output, .cell_input, details, main")?.className;
            if (again(token.className, token.parentElement.className, where))
                token.replaceWith(...token.childNodes);
        }
        for (const node of [...document.querySelectorAll(
            "tr, li, dl, p, details, :is(dt *, em, strong, code, .pre):not(a *)")].reverse())
            if (!node.matches(".headerlink, :has(.headerlink)")
                && again(place(node), alike(node.innerHTML))) node.remove();
    },

    beyondTheWindow() {
        const root = document.documentElement, width = root.clientWidth;
        if (root.scrollWidth <= width) return [];
        const out = [...document.querySelectorAll("body *")].filter(
            (node) => node.getBoundingClientRect().right > width + 1);
        return [`${root.scrollWidth} of ${width} pixels wide`,
            ...out.slice(-4).map((node) => node.outerHTML.slice(0, 120))];
    },

    shrunk() {
        return [...document.querySelectorAll("img.plot")]
            .filter((plot) => plot.getClientRects().length)
            .map((plot) => [plot, parseFloat(plot.style.getPropertyValue("--drawn"))])
            .filter(([plot, drawn]) => plot.clientWidth < 0.75 * drawn)
            .map(([plot, drawn]) => `${plot.clientWidth} of ${drawn} pixels: ${plot.alt}`);
    },

    loaded() {
        return ["navigation", "resource"].flatMap((kind) => performance.getEntriesByType(kind))
            .map((entry) => [entry.decodedBodySize, entry.name]);
    },
})
