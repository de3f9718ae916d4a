"""Every setting is in `.env.example`, in docs/configuration.md and nowhere under another name."""

import re

import pytest
from pydantic import SecretStr
from pydantic_core import PydanticUndefined

from app.settings import Settings
from tests.meta import ROOT


def _text(value: object) -> str:
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def _plain(text: str) -> str:
    return text.removesuffix(".0") if text.removesuffix(".0").isdigit() else text


def defaults() -> dict[str, str]:
    """Return every setting by its name in the environment, with its default as one would write it there."""
    return {
        name.upper(): "" if field.default is PydanticUndefined else _text(field.default)
        for name, field in Settings.model_fields.items()
    }


def test_the_example_environment_equals_the_settings():
    """Each name is there once, commented out, with the default of the code: a plain copy changes nothing."""
    pairs = re.findall(r"^#([A-Z_]+)=(.*)$", (ROOT / ".env.example").read_text(), re.MULTILINE)
    assert {key: _plain(value) for key, value in pairs} == defaults()
    assert len(pairs) == len(dict(pairs))


def test_the_configuration_page_lists_every_setting_with_its_default():
    """docs/configuration.md has one row a setting: name, default, meaning."""
    rows = re.findall(
        r"^\| `([A-Z_]+)` \| (.*?) \| (.+) \|$", (ROOT / "docs/configuration.md").read_text(), re.MULTILINE
    )
    assert {name: _plain(default.strip("`").replace("(empty)", "")) for name, default, _ in rows} == defaults()
    assert all(len(meaning) > 10 for _, _, meaning in rows)


@pytest.mark.parametrize("page", ["README.md", "docs/scaling.md", "docs/architecture.md", "docs/protocol.md"])
def test_a_setting_named_in_the_docs_exists(page):
    """A name in capitals and backticks that looks like a setting is one."""
    named = set(re.findall(r"`([A-Z]+(?:_[A-Z]+)+)(?:=[^`]*)?`", (ROOT / page).read_text()))
    others = {"IN_PROGRESS", "IN_APP"}
    assert named - others <= set(defaults())
