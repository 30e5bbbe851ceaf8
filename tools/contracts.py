"""A contract about imports that knows which folders of kernels/ are operators.

import-linter asks it, as pyproject.toml says under [tool.importlinter]: make lint.
"""

from importlinter.contracts.layers import Layer, LayersContract, ModuleTail

OPERATORS = "OPERATORS"
MARKS = ("operator", "reference")  # a folder with one of these modules is an operator


def operators(graph, package):
    """The names of the folders of a package that are operators.

    Args:
        graph: of imports, as grimp makes it.
        package: its dotted name.
    """
    return sorted(
        child.rpartition(".")[2]
        for child in graph.find_children(package)
        if any(f"{child}.{mark}" in graph.modules for mark in MARKS)
    )


class LayersWithOperators(LayersContract):
    """import-linter's layers of one container, with a line for all operators.

    The line OPERATORS stands for every folder that is an operator: none of them imports another.
    """

    type_name = "layers_with_operators"

    def check(self, graph, verbose):
        """Put the names in their place, and check the layers."""
        names = operators(graph, self.containers[0].expression)
        place = Layer({ModuleTail(OPERATORS)})
        here = Layer({ModuleTail(name) for name in names}, is_independent=True)
        self.layers = [here if layer == place else layer for layer in self.layers]
        return super().check(graph, verbose)
