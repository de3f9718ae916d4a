"""The outbox as a page for people: one table, a filter, no script. Everything that came in is escaped."""

from collections.abc import Sequence
from html import escape

from sandbox.records import Call, Filter, iso

_STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8881; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 76rem; padding: 1.5rem; }
h1 { font-size: 1.3rem; margin: 0; }
header { align-items: baseline; display: flex; flex-wrap: wrap; gap: .5rem 1.5rem; margin-bottom: 1rem; }
header span { opacity: .75; }
form { display: flex; flex-wrap: wrap; gap: .5rem; margin-bottom: 1rem; }
input, select, button { border: 1px solid var(--line); border-radius: .4rem; font: inherit; padding: .3rem .6rem; }
table { border-collapse: collapse; width: 100%; }
th, td { border-bottom: 1px solid var(--line); padding: .45rem .6rem; text-align: left; vertical-align: top; }
th { font-size: .8rem; letter-spacing: .03em; opacity: .7; text-transform: uppercase; }
td.text { overflow-wrap: anywhere; white-space: pre-wrap; }
td.time, code { font-family: ui-monospace, monospace; font-size: .85em; white-space: nowrap; }
b.tag { background: #8883; border-radius: 1rem; font-size: .8em; font-weight: 600; padding: .1rem .6rem; }
b.accepted { background: #2a93; }
b.failed, b.gone, b.down, b.invalid { background: #d333; }
b.throttled, b.rate_limited, b.hanging, b.dropped { background: #c803; }
p.empty { background: var(--soft); border-radius: .6rem; padding: 2rem; text-align: center; }
"""
_CHANNELS = ("", "SMS", "EMAIL", "PUSH")
_SHOWN_CHARACTERS = 600


def outbox_page(calls: Sequence[Call], wanted: Filter, stats: dict[str, object]) -> str:
    """Return the page about these calls, which `wanted` chose."""
    figures = " · ".join(f"{stats[name]} {name}" for name in ("calls", "accepted", "unique", "duplicates"))
    options = "".join(
        f'<option value="{name}"{" selected" if name == wanted.channel else ""}>{name or "every channel"}</option>'
        for name in _CHANNELS
    )
    table = (
        "<table><thead><tr><th>Received</th><th>Channel</th><th>Recipient</th><th>Message</th><th>Outcome</th>"
        f"<th>Reference</th></tr></thead><tbody>{''.join(map(_row, calls))}</tbody></table>"
        if calls
        else '<p class="empty">Nothing here yet. Send a notification, then reload this page.</p>'
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Sandbox outbox</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head><body>'
        f"<header><h1>Sandbox outbox</h1><span>{figures}</span></header>"
        f'<form><select name="channel" aria-label="Channel">{options}</select>'
        f"{_text_field('recipient', wanted.recipient)}{_text_field('reference', wanted.reference)}"
        f'<input name="limit" type="number" min="1" aria-label="Limit" value="{wanted.limit}">'
        f"<button>Filter</button></form>{table}</body></html>"
    )


def _text_field(name: str, value: str) -> str:
    return f'<input name="{name}" placeholder="{name}" aria-label="{name}" value="{escape(value)}">'


def _row(call: Call) -> str:
    text = call.body if len(call.body) <= _SHOWN_CHARACTERS else call.body[:_SHOWN_CHARACTERS] + "…"
    subject = f"<strong>{escape(call.subject)}</strong>\n" if call.subject else ""
    return (
        f'<tr><td class="time">{iso(call.received_at)}</td><td>{escape(call.channel)}</td>'
        f"<td>{escape(call.recipient)}</td>"
        f'<td class="text">{subject}{escape(text)}</td>'
        f'<td><b class="tag {escape(call.outcome)}">{escape(call.outcome)}</b></td>'
        f"<td><code>{escape(call.reference)}</code></td></tr>"
    )
