"""docs/quickstart.md is run as a team pastes it, and keeps what it promises."""

import json
import os
import re
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.stack import Stack
from tests.meta import ROOT
from tests.waiting import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

PAGE = ROOT / "docs/quickstart.md"
WHO = ("ana", "ben", "chika")
MAILS = {
    "ana": ("A caminho, Ana", "Olá Ana, seu pedido de €\xa01.234,50 chega às 09:00."),
    "ben": ("On its way, Ben", "Hello Ben, your order of €1,234.50 arrives at 13:00."),
    "chika": ("On its way, Chika", "Hello Chika, your order of €1,234.50 arrives at 21:00."),
}
INBOXES = {
    "ana": ("A caminho", "Chega às 09:00, Ana."),
    "ben": ("On its way", "It arrives at 13:00, Ben."),
    "chika": ("On its way", "It arrives at 21:00, Chika."),
}


def _paste(stack: Stack) -> str:
    """Run the blocks of the page in one bash, as a reader in the checkout; return what they print."""
    script = "\n".join(re.findall(r"^```sh\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL))
    environment = {
        "HOME": str(stack.data),
        "LANG": "C.UTF-8",
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "RUN_JSON": str(stack.data / "run.json"),
    }
    ended = subprocess.run(
        ["bash", "-euo", "pipefail"],
        input=script,
        capture_output=True,
        text=True,
        env=environment,
        cwd=ROOT,
        timeout=90,
        check=False,
    )
    assert ended.returncode == 0, f"{ended.stdout[-2000:]}\n{ended.stderr[-2000:]}"
    return ended.stdout


def _get(stack: Stack, path: str) -> Any:
    request = urllib.request.Request(f"{stack.info['api']}/v1{path}", headers=stack.bearer)
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.load(answer)


def test_the_quickstart_does_what_it_says(tmp_path: Path) -> None:
    """Three people are reached, each in their language and by their clock; a wish is kept and named; sums add up.

    Pasted a second time it makes nothing twice. Fails when a block of the page is refused, and when what came of
    the blocks is not what the text between them says.
    """
    with Stack(tmp_path / "stack", "--broker", "light") as stack:
        stack.until_ready()
        _check_what_was_printed(_paste(stack))
        _check_what_came_of_it(stack)
        _paste(stack)
        _check_what_came_of_it(stack)


def _check_what_was_printed(printed: str) -> None:
    for said in (
        '"version": 1',
        '"a***@s***.com"',
        '"rule": "user_category_channel"',
        '"rule": "user_quiet_hours"',
        "T23:00:00.000Z",
        "the same notification: ",
        "Olá Ana, seu pedido de €\xa01.234,50 chega às 09:00.",
    ):
        assert said in printed, said
    assert re.findall(r'"unread": (\d+)', printed) == ["2", "1"]
    mails = re.findall(r"^(\w+)@sandbox\.example\.com \| (.+) \| (.+)$", printed, re.MULTILINE)
    assert mails == [(who, *MAILS[who]) for who in WHO]


def _check_what_came_of_it(stack: Stack) -> None:
    def mails() -> dict[str, list[tuple[str, str]]]:
        return {
            who: [
                (mail["subject"], mail["body"].strip())
                for mail in stack.sandbox.outbox(recipient=f"{who}@sandbox.example.com")
            ]
            for who in WHO
        }

    eventually(lambda: mails() == {who: [MAILS[who]] for who in WHO}, seconds=20, why=str(mails()))
    assert len(stack.sandbox.outbox()) == len(WHO)
    for who, texts in INBOXES.items():
        items = {item["category"]: item for item in _get(stack, f"/users/{who}/inbox")["data"]}
        assert set(items) == ({"orders", "marketing"} if who == "ben" else {"orders"})
        assert (items["orders"]["content"]["title"], items["orders"]["content"]["body"]) == texts
        assert (items["orders"]["read_at"] is not None) == (who == "ben")
        assert _get(stack, f"/notifications/unread-count?user_id={who}") == {"user_id": who, "unread": 1}
    sale, order = _get(stack, "/notifications?user_id=ben")["data"]
    assert sale["suppressed"] == [{"channel": "EMAIL", "reason": "preference_off"}]
    assert [each["channel"] for each in sale["deliveries"]] == ["IN_APP"]
    assert order["suppressed"] == []
    sums = _get(stack, "/notifications/stats")
    assert sums["by_category"] == {"orders": 3, "marketing": 1}
    assert sums["by_channel"] == {"EMAIL": 3, "IN_APP": 4}
    assert sums["by_status"] == {"COMPLETED": 4}
    assert sums["total"] == sum(sums["by_day"].values()) == 4
