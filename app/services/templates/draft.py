"""A template as somebody wrote it, and whether it can be kept: every fault by its field and line.

Invariants of what is kept: each part compiles and uses declared variables only, each language is known, and every
channel is written in the default language, so that a reader of any other language gets something.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson

from app.rendering.bodies import Body, FieldFaults
from app.rendering.library import Version, variables_of
from app.rendering.locales import UnknownLanguageError, canonical
from app.rendering.source import RESERVED
from app.services.refusal import Problem, Refused

_IDENTIFIER = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}", re.ASCII)
_PROBLEMS_SHOWN = 20

Bodies = Mapping[str, Mapping[str, Mapping[str, str]]]


@dataclass(frozen=True, slots=True)
class Draft:
    """What a version is to say. `bodies` are the sources by language, channel and part."""

    default_locale: str
    variables: Sequence[Mapping[str, Any]]
    bodies: Bodies
    category: str | None = None

    def digest(self) -> bytes:
        """Return what tells two contents apart; the category is the template's and not the version's."""
        said = {"default_locale": self.default_locale, "variables": self.variables, "bodies": self.bodies}
        return hashlib.sha256(orjson.dumps(said, option=orjson.OPT_SORT_KEYS)).digest()

    def version(self, tenant_id: str, name: str, number: int) -> Version:
        """Return it as the renderer takes it."""
        return Version(tenant_id, name, number, self.default_locale, variables_of(self.variables), self.bodies)


def checked(draft: Draft) -> Draft:
    """Return a draft with its language tags in their usual form; raise Refused naming all that is wrong."""
    draft, problems = _with_tags(draft)
    problems += _variable_problems(draft)
    if not problems:
        problems += _coverage_problems(draft) + _body_problems(draft)
    if problems:
        raise Refused("DOMAIN_TEMPLATE_INVALID", "The template cannot be kept.", problems[:_PROBLEMS_SHOWN])
    return draft


def _with_tags(draft: Draft) -> tuple[Draft, list[Problem]]:
    problems: list[Problem] = []
    bodies: dict[str, Mapping[str, Mapping[str, str]]] = {}
    for tag, channels in draft.bodies.items():
        name = _tag(tag, f"bodies.{tag}", problems)
        if name in bodies:
            problems.append(Problem(f"bodies.{tag}", f"is the language {name} a second time"))
        bodies[name] = channels
    return replace(
        draft, default_locale=_tag(draft.default_locale, "default_locale", problems), bodies=bodies
    ), problems


def _tag(tag: str, field: str, problems: list[Problem]) -> str:
    try:
        return canonical(tag)
    except UnknownLanguageError:
        problems.append(Problem(field, "is no language that is known; write it like pt-BR"))
        return tag


def _variable_problems(draft: Draft) -> list[Problem]:
    problems: list[Problem] = []
    names = Counter(str(each["name"]) for each in draft.variables)
    for place, variable in enumerate(draft.variables):
        name = variable["name"]
        if not _IDENTIFIER.fullmatch(name) or name in RESERVED:
            problems.append(Problem(f"variables.{place}.name", "must be a name of letters, digits and _"))
        elif names[name] > 1:
            problems.append(Problem(f"variables.{place}.name", f"{name} is declared twice"))
    return problems


def _coverage_problems(draft: Draft) -> list[Problem]:
    default = draft.bodies.get(draft.default_locale)
    if default is None:
        return [Problem("default_locale", f"there are no bodies in {draft.default_locale}")]
    return [
        Problem(f"bodies.{tag}.{channel}", f"{channel} is missing in the default language {draft.default_locale}")
        for tag, channels in draft.bodies.items()
        for channel in channels
        if channel not in default
    ]


def _body_problems(draft: Draft) -> list[Problem]:
    declared = frozenset(str(each["name"]) for each in draft.variables)
    problems: list[Problem] = []
    for tag, channels in draft.bodies.items():
        for channel, parts in channels.items():
            try:
                Body(channel, parts, declared)
            except FieldFaults as error:
                problems += [
                    Problem(f"bodies.{tag}.{channel}.{part}", str(fault))
                    for part, faults in error.faults.items()
                    for fault in faults
                ]
    return problems
