"""Keep the built book readable with no network, and light: drop scripts that it has no use for.

jupyter-book 1 always loads sphinx-thebe (live code), whose script comes from elsewhere; the book
has no button for it. The theme draws its icons with 1.5 MB of script, and has a font for them too.
"""

import re
from importlib.util import find_spec
from pathlib import Path

ICON = re.compile(r"\bfa-([a-z0-9-]+)")
ICON_RULE = re.compile(r"((?:\.fa-[a-z0-9-]+:before,?)+)\{content:[^}]*\}")
CODE = re.compile(r'"\\([0-9a-f]{2,4}) ?"')
BARE = re.compile("[\ue000-\uf8ff]")  # those of the boxes stand as characters


def _is_thebe(asset):
    text = f"{getattr(asset, 'filename', asset)} {getattr(asset, 'attributes', {}).get('body', '')}"
    return "thebe" in text.lower()


def _drop_thebe(app, pagename, templatename, context, doctree):
    for kind in ("script_files", "css_files"):
        context[kind] = [asset for asset in context.get(kind, []) if not _is_thebe(asset)]


def _slim_icons(app, exception):
    """The icons come from the font, and of it the pages keep those that they use."""
    static = Path(app.outdir) / "_static"
    script, css = static / "scripts" / "fontawesome.js", static / "styles/pydata-sphinx-theme.css"
    font = static / "vendor" / "fontawesome" / "webfonts" / "fa-solid-900.ttf"
    if exception or not (script.exists() and css.exists() and font.exists()):
        return
    script.write_text("// The icons come from the font.\n")
    users = [*Path(app.outdir).rglob("*.html"), *static.rglob("*.js"), *static.glob("*.css")]
    used = {name for path in users for name in ICON.findall(path.read_text(encoding="utf-8"))}
    rules = css.read_text(encoding="utf-8")
    kept = ICON_RULE.sub(lambda rule: rule[0] * bool(used & set(ICON.findall(rule[1]))), rules)
    css.write_text(kept, encoding="utf-8")
    if find_spec("fontTools"):
        from fontTools import subset

        styles = kept + "".join(path.read_text(encoding="utf-8") for path in static.rglob("*.css"))
        options = subset.Options(flavor="woff", ignore_missing_unicodes=True)
        whole = subset.load_font(font, options)
        cut = subset.Subsetter(options)
        bare = {ord(icon) for icon in BARE.findall(styles)}
        cut.populate(unicodes=bare | {int(code, 16) for code in CODE.findall(styles)})
        cut.subset(whole)
        # The name is the one that the style sheets ask for; a browser looks at what is inside.
        subset.save_font(whole, font.with_suffix(".woff2"), options)


def setup(app):
    app.connect("html-page-context", _drop_thebe, priority=900)  # after sphinx-thebe
    app.connect("build-finished", _slim_icons, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
