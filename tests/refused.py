"""Arguments that are refused: the test of a table."""

import pytest


def refuses(function, *rows, error=ValueError):
    """A test that a call is refused. Each row has its arguments, and a pattern of what is said."""

    @pytest.mark.parametrize("row", rows, ids=[row[-1] for row in rows])
    def test(row):
        *arguments, says = row
        with pytest.raises(error, match=says):
            function(*arguments)

    return test
