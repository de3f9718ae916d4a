"""Preferences: the order of precedence, one rule against the next."""

import itertools

import pytest

from app.domain.kinds import Channel
from app.domain.preferences import Decision, Rule, TenantPolicy, category_policy, resolve

LADDER = list(Rule)


def said(rules: set[Rule], *, on: Rule | None) -> Decision:
    """Decide where each of `rules` says something: `on` says on, all others off."""

    def switches(*pairs: tuple[str, Rule]) -> dict[str, bool]:
        return {key: rule is on for key, rule in pairs if rule in rules}

    choices = {
        "news": switches(("SMS", Rule.USER_CATEGORY_CHANNEL), ("*", Rule.USER_CATEGORY)),
        "*": switches(("SMS", Rule.USER_CHANNEL), ("*", Rule.USER_ALL)),
    }
    category = category_policy(
        "news",
        mandatory=Rule.MANDATORY in rules,
        channels=switches(("SMS", Rule.TENANT_CATEGORY_CHANNEL), ("*", Rule.TENANT_CATEGORY)),
    )
    tenant = TenantPolicy(channels=switches(("SMS", Rule.TENANT_CHANNEL), ("*", Rule.TENANT_ALL)))
    return resolve(choices, category, tenant, Channel.SMS)


@pytest.mark.parametrize(("strong", "weak"), list(itertools.combinations(LADDER, 2)))
def test_each_rule_goes_before_every_later_one(strong, weak):
    """Of two that say the opposite the one that comes first decides. Fails when two steps are exchanged."""
    found = said({strong, weak}, on=strong)
    assert found == Decision(allowed=True, rule=strong)
    if strong is not Rule.MANDATORY:
        assert said({strong, weak}, on=weak) == Decision(allowed=False, rule=strong)


def test_a_word_about_another_channel_or_category_decides_nothing():
    """Only what names this channel, this category, or all of them."""
    choices = {"news": {"EMAIL": False}, "offers": {"*": False}, "*": {"PUSH": False}}
    tenant = TenantPolicy(channels={"IN_APP": False})
    found = resolve(choices, category_policy("news", channels={"PUSH": False}), tenant, Channel.SMS)
    assert found == Decision(allowed=True, rule=Rule.DEFAULT)


def test_security_is_mandatory_unless_the_tenant_says_otherwise():
    """The one category that is mandatory without a word."""
    off = {"security": {"*": False}}
    assert resolve(off, category_policy("security"), TenantPolicy(), Channel.SMS).allowed
    assert not resolve(off, category_policy("security", mandatory=False), TenantPolicy(), Channel.SMS).allowed
    assert not category_policy("marketing").is_mandatory
