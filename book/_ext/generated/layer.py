"""{decoder-layer} WHAT [CHIP PASS]: a decoder layer's estimated time: picture, parts, worth or
narrow."""

import html

from docutils import nodes

from kernels.figures import report, store
from validation import decoder_layer
from validation.decoder_layer import STAGES, moved

from .parts import DASH, Generated, fill, table, text

VIEWS = ("v5e", "forward"), ("v6e", "forward"), ("v5e", "gradient")
DECODE = ("v5e", "decode"), ("v6e", "decode")
PASSES = {
    "forward": "forward",
    "gradient": "forward and backward",
    "decode": "one token of each sequence",
}
SAID = {
    "xla": "XLA, at once",
    "xla_sliced": "XLA, in slices",
    "xla_blocks": "XLA, in blocks",
    "package": "package",
    "mixed": "mixed",
}
BY_ATTENTION = "v6e"  # every published pair of this chip is of attention, so no other row is judged
SHADES = 0.3, 0.9, 0.55, 0.15, 0.0  # of the stages, in their order


class DecoderLayer(Generated):
    """Of results/decoder_layer.csv."""

    required_arguments = 1
    optional_arguments = 2

    def run(self):
        self.depend(store.RESULTS / decoder_layer.FILE, store.RESULTS / "validation.csv")
        self.depend(store.RESULTS / "estimated.csv")
        what, *view = self.arguments
        views = [tuple(view)] if view else DECODE if what == "narrow" else VIEWS
        layers = {view: decoder_layer.recorded(*view) for view in views}
        return [*getattr(self, what)(layers)]

    def picture(self, layers):
        yield nodes.raw("", bars(VIEWS[0][0], layers[VIEWS[0]]), format="html")

    def parts(self, layers):
        for (chip, pass_), forms in layers.items():
            lines = []
            for stage in (*STAGES, ""):
                times = [1e3 * decoder_layer.spent(forms[form], stage) for form in forms]
                if max(times) < 0.005:
                    continue
                judged = (  # what XLA fetches ahead in decoding hides behind another stage
                    stage != decoder_layer.COPIES
                    and pass_ != "decode"
                    and (chip != BY_ATTENTION or "attention" in stage)
                )
                verdicts = [
                    decoder_layer.verdict(forms, f, stage) if judged or not stage else DASH
                    for f in ("package", "mixed")
                ]
                name = stage or fill(nodes.strong(), "the layer")
                shown = [report.digits(ms) if ms >= 0.001 else DASH for ms in times]
                lines.append((text(name), *shown, *verdicts))
            yield text(fill(nodes.strong(), chip), f", {PASSES[pass_]}, ms")
            titles = *(SAID[form] for form in forms), "package is", "mixed is"
            yield table(("", *titles), lines, "figures")
            whole = pass_ == "decode"
            stages = STAGES if whole else ("feed-forward", decoder_layer.COPIES)
            traffic = (
                f"{SAID[form]} {sum(moved(p, stage) for stage in stages) / 1e9:.2f} GB"
                for form, p in forms.items()
            )
            mover = "layer moves" if whole else "feed-forward and the copies move"
            yield text(f"Between HBM and the chip the {mover}: {', '.join(traffic)}.")

    def narrow(self, layers):
        lines = []
        for (chip, _), forms in layers.items():
            for weights in ("int8", "int4"):
                now, then, times = decoder_layer.narrow_gain(forms["package"], weights)
                shown = (report.digits(1e3 * seconds) for seconds in (now, then))
                lines.append((f"{chip}, {weights}", *shown, f"{times:.2f}"))
        titles = "of the package's layer", "products, ms", "with narrow weights", "times as fast"
        yield table(titles, lines, "figures")

    def worth(self, layers):
        (chip, _), forms = next(iter(layers.items()))
        program, lines = forms["mixed"], []
        for stage in STAGES:
            share = decoder_layer.spent(program, stage) / program.seconds
            if share < 0.005:
                continue
            gains = (decoder_layer.gain(program, stage, factor) - 1 for factor in (1.1, 2, 1e9))
            lines.append((stage, report.percent(share), *(f"{100 * g:.1f} %" for g in gains)))
        titles = f"of the mixed layer, {chip}", "share", "10 % faster", "twice as fast", "free"
        yield table(titles, lines, "figures")


def bars(chip, forms):
    """A bar for each form, cut into stages, as SVG."""
    left, width, step = 110, 620, 34
    height = step * len(forms) + 52
    longest = max(program.seconds for program in forms.values())
    drawn = []
    for row, (form, program) in enumerate(forms.items()):
        x, y = left, 6 + step * row
        drawn.append(f'<text x="0" y="{y + 17}">{SAID[form]}</text>')
        for stage, shade in zip(STAGES, SHADES, strict=True):
            seconds = decoder_layer.spent(program, stage)
            wide = (width - left - 70) * seconds / longest
            said = html.escape(f"{SAID[form]}, {stage}: {1e3 * seconds:.2f} ms")
            drawn.append(
                f'<rect x="{x:.1f}" y="{y}" width="{wide:.1f}" height="24" fill="currentColor" '
                f'fill-opacity="{shade}" stroke="currentColor"><title>{said}</title></rect>'
            )
            x += wide
        drawn.append(f'<text x="{x + 8:.1f}" y="{y + 17}">{1e3 * program.seconds:.2f} ms</text>')
    x, y = 0, height - 24
    for stage, shade in zip(STAGES, SHADES, strict=True):
        drawn.append(
            f'<rect x="{x}" y="{y}" width="14" height="14" fill="currentColor" '
            f'fill-opacity="{shade}" stroke="currentColor"/>'
            f'<text x="{x + 19}" y="{y + 12}">{stage}</text>'
        )
        x += 34 + 7 * len(stage)
    label = f"The layer's stages on a {chip}, a bar for each form: " + "; ".join(
        f"{SAID[form]} {1e3 * program.seconds:.1f} ms, of which attention "
        f"{1e3 * decoder_layer.spent(program, 'rotary, attention'):.1f}"
        for form, program in forms.items()
    )
    return (
        f'<figure class="standing" tabindex="0"><svg role="img" aria-label="{html.escape(label)}" '
        f'viewBox="0 0 {width} {height}">{"".join(drawn)}</svg>'
        f"<figcaption>A decoder layer, forward, estimated for a {chip}. The solid "
        "piece is attention.</figcaption></figure>"
    )
