"""How many messages an SMS is sent as: by the alphabet that its text needs.

The facts are those of 3GPP TS 23.038: 7-bit letters, some of which need an escape before them, or UTF-16 code
units. One message holds 160 or 70; each part of a longer one 153 or 67, and no letter is torn between two parts.
"""

from dataclasses import dataclass
from typing import Literal

_BASIC = frozenset(
    "@£$¥èéùìòÇ\nØø\rÅåΔ_ΦΓΛΩΠΨΣΘΞÆæßÉ !\"#¤%&'()*+,-./0123456789:;<=>?"
    "¡ABCDEFGHIJKLMNOPQRSTUVWXYZÄÖÑÜ§¿abcdefghijklmnopqrstuvwxyzäöñüà"
)
_EXTENSION = frozenset("\f^{}\\[~]|€")
_BEYOND_UNIT = 0xFFFF


@dataclass(frozen=True, slots=True)
class Segments:
    """What a text costs: `units` of its alphabet, in `count` messages. `odd` are the letters that cost most."""

    alphabet: Literal["GSM-7", "UCS-2"]
    units: int
    count: int
    odd: str


def segments(text: str) -> Segments:
    """Return how a text is sent by SMS. No text is no message."""
    odd = "".join(dict.fromkeys(each for each in text if each not in _BASIC and each not in _EXTENSION))
    if odd:
        sizes = [2 if ord(each) > _BEYOND_UNIT else 1 for each in text]
        return Segments("UCS-2", sum(sizes), _count(sizes, 70, 67), odd)
    sizes = [2 if each in _EXTENSION else 1 for each in text]
    return Segments("GSM-7", sum(sizes), _count(sizes, 160, 153), "")


def _count(sizes: list[int], alone: int, together: int) -> int:
    if sum(sizes) <= alone:
        return 1 if sizes else 0
    count, used = 1, 0
    for size in sizes:
        if used + size > together:
            count, used = count + 1, 0
        used += size
    return count
