"""What the pages that nobody writes are made of: paragraphs, tables, what unfolds, links."""

import chapters
from docutils import nodes
from sphinx import addnodes
from sphinx.util.docutils import SphinxDirective

DASH = "—"


class details(nodes.General, nodes.Element):
    """What unfolds; its first child is a summary."""


class summary(nodes.General, nodes.TextElement):
    """What is seen of details that are folded."""


def text(*parts, classes=()):
    """A paragraph of strings and nodes."""
    return fill(nodes.paragraph(classes=list(classes)), *parts)


def fill(node, *parts):
    node += [nodes.Text(part) if isinstance(part, str) else part for part in parts]
    return node


def fold(title, *content):
    return fill(details(), fill(summary(), title), *content)


def explained(word, reason):
    """A word with a tooltip."""
    return fill(nodes.abbreviation(explanation=reason), word) if reason else nodes.Text(word)


def table(titles, rows, name):
    """A table; a row of a single cell spans all columns.

    Args:
        titles: strings or nodes, one for each column.
        rows: lists of cells, which are strings or nodes.
        name: its class, beside "generated".

    Returns:
        The node.
    """
    node = nodes.table(classes=["generated", name])
    group = nodes.tgroup(cols=len(titles))
    group += [nodes.colspec(colwidth=1) for _ in titles]
    head, body = nodes.thead(), nodes.tbody()
    for part, lines in ((head, [titles]), (body, rows)):
        for cells in lines:
            line = nodes.row()
            for cell in cells:
                entry = nodes.entry()
                if len(cells) == 1:
                    entry["morecols"] = len(titles) - 1
                    line["classes"] = ["group"]
                entry += cell if isinstance(cell, nodes.Element) else text(cell)
                line += entry
            part += line
    group += [head, body]
    node += group
    return node


class Generated(SphinxDirective):
    """A directive that fills its page with sections."""

    def section(self, title, *content):
        names = [nodes.fully_normalize_name(title)]
        node = nodes.section(ids=[nodes.make_id(title)], names=names)
        node += [fill(nodes.title(), title), *content]
        return node

    def link(self, chapter, words=None):
        """A link to the notebook of a chapter.

        Args:
            chapter: its slug; "" for no link, as of what no chapter is about.
            words: what the link reads; by default the chapter's title.
        """
        return self.to(self.page(chapter), chapter, words) if chapter else nodes.Text(words or "")

    def said(self, operator):
        """What an operator computes, and the chapter about it where there is one."""
        known = (" Chapter: ", self.link(operator.chapter), ".") if operator.chapter else ()
        return f": {operator.summary}.", *known

    def page(self, chapter):
        """The document that is the notebook of a chapter."""
        return chapters.by_slug(self.env.found_docs).get(chapter, f"notebooks/{chapter}")

    def to(self, page, name, words=None):
        """A link to a document.

        Args:
            page: the document, from the book's root.
            name: what it is called where there is none.
            words: what the link reads; by default the page's title.
        """
        link = addnodes.pending_xref(
            "",
            refdoc=self.env.docname,
            refdomain="std",
            reftype="doc",
            reftarget=f"/{page}",
            refexplicit=bool(words),
            refwarn=True,
        )
        return fill(link, fill(nodes.inline(), words or name))

    def depend(self, *paths):
        for path in paths:
            self.env.note_dependency(str(path))
