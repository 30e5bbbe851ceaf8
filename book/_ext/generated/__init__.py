"""The pages that nobody writes: {results}, {estimates}, {judged}, {foreign} and {decoder-layer}
from results/, {status} from what the tests found, {api} from the catalog and the modules."""

from .api import Api
from .estimates import Estimates
from .foreign import ForeignRecord
from .judged import JudgeRecord
from .layer import DecoderLayer
from .parts import details, summary
from .results import Results
from .status import Status


def _enter(tag):
    return lambda self, node: self.body.append(self.starttag(node, tag, ""))


def _leave(tag):
    return lambda self, node: self.body.append(f"</{tag}>\n")


def setup(app):
    for node in (details, summary):
        app.add_node(node, html=(_enter(node.__name__), _leave(node.__name__)))
    app.add_css_file("generated.css")
    app.add_directive("results", Results)
    app.add_directive("estimates", Estimates)
    app.add_directive("judged", JudgeRecord)
    app.add_directive("foreign", ForeignRecord)
    app.add_directive("decoder-layer", DecoderLayer)
    app.add_directive("status", Status)
    app.add_directive("api", Api)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
