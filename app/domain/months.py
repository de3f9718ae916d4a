"""Calendar months, each named by its first day."""

from datetime import date

_DECEMBER = 12


def month_after(month: date) -> date:
    """Return the first day of the month after `month`."""
    return date(month.year + month.month // _DECEMBER, month.month % _DECEMBER + 1, 1)


def month_before(month: date) -> date:
    """Return the first day of the month before `month`."""
    return date(month.year - (month.month == 1), (month.month - 2) % _DECEMBER + 1, 1)
