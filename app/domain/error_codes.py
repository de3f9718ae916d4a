"""The catalogue of error codes: each that an answer of the API can carry, with what it means and what to do.

`error_codes.toml` beside this module is the one place where a code is made known, in one line: docs/errors.md,
the OpenAPI document and `arauto errors` are written from it, and tests fail for a code that is raised and not
in there, is in there and never raised, or is answered with another status. A code is stable, since clients
switch on it: one that is wrong is replaced and not renamed.
"""

import tomllib
from importlib.resources import files
from typing import NamedTuple


class ErrorCode(NamedTuple):
    """A code, the HTTP status that it comes with, when it comes, and what the caller can do; texts in Markdown."""

    code: str
    status: int
    when: str
    remedy: str


def _read() -> dict[str, ErrorCode]:
    text = files(__package__).joinpath("error_codes.toml").read_text(encoding="utf-8")
    return {code: ErrorCode(code, *entry) for code, entry in tomllib.loads(text).items()}


CATALOGUE = _read()


def table() -> str:
    """Return the catalogue as a table in Markdown."""
    head = ["| code | status | when | what to do |", "|---|---|---|---|"]
    rows = [f"| `{each.code}` | {each.status} | {each.when} | {each.remedy} |" for each in CATALOGUE.values()]
    return "\n".join(head + rows) + "\n"


def with_table(page: str) -> str:
    """Return `page` with the table between its two marks replaced; raise ValueError for a page without them."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page has no {BEGIN} and {END}")
    return f"{before}{BEGIN}\n\n{table()}\n{END}{after}"


BEGIN = "<!-- The table down to the next mark is written by `make errors`. -->"
END = "<!-- End of the written table. -->"
