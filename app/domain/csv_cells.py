"""Cells of CSV that a spreadsheet cannot take for formulas, and the way back.

A cell that begins with = + - @, a tab or a carriage return gets an apostrophe in front, which spreadsheets read as
"this is text". One that begins so behind apostrophes gets one more, so that reading takes exactly one away and
every text comes back as it was. A phone number in E.164 stays as it is: as a formula it is the number itself.
"""

import re

_FORMULA = re.compile(r"'*[=+\-@\t\r]")
_GUARDED = re.compile(r"'+[=+\-@\t\r]")
_PHONE = re.compile(r"\+[0-9]{4,15}")


def guarded(text: str) -> str:
    """Return a cell that holds `text` and is no formula."""
    return f"'{text}" if _FORMULA.match(text) and not _PHONE.fullmatch(text) else text


def plain(cell: str) -> str:
    """Return the text of a cell that `guarded` made; any other cell comes back as it is."""
    return cell[1:] if _GUARDED.match(cell) else cell
