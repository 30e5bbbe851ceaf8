"""What tests read of a drawn picture."""

import re
import xml.etree.ElementTree as ElementTree

SVG = "{http://www.w3.org/2000/svg}"


def words(picture):
    return [text.text for text in ElementTree.fromstring(picture.svg).iter(f"{SVG}text")]


def boxes(picture):
    """Left, top, right and bottom of each rectangle: of a well-formed picture, inside its frame,
    that asks for nothing from elsewhere."""
    root = ElementTree.fromstring(picture.svg)
    left, top, width, height = map(float, root.attrib["viewBox"].split())
    corners = []
    for rect in root.iter(f"{SVG}rect"):
        if "x" in rect.attrib:  # else inside a pattern
            x, y, w, h = (float(rect.attrib[key]) for key in ("x", "y", "width", "height"))
            assert left <= x and x + w <= left + width + 0.2
            assert top <= y and y + h <= top + height
            corners.append((x, y, x + w, y + h))
    html = picture.element
    assert picture.says and picture.svg in html
    assert not re.search(r"https?://(?!www\.w3\.org)", html)
    return corners
