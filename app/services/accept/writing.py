"""What a notification says: checked, and made ready to be stored, before anything is.

With a template, the version and the language are chosen here and stay, and all that the payload lacks is told.
Accept renders every channel of a single request, so that what cannot be rendered is the caller's 422 and not a
delivery that fails later; of a batch only what is stored. Stored is what a person can read in the service itself:
the in-app message, which is delivered by being stored, or else the first channel's text. E-mail, SMS and push are
rendered again by the worker when they are sent: that costs microseconds, and storing them would cost their size.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from zoneinfo import ZoneInfo

from app.domain.kinds import Channel
from app.domain.users import KnownUser
from app.rendering.bodies import Content, EmptyContentError, alternative
from app.rendering.html import has_content, sanitise
from app.rendering.library import Library, Version
from app.rendering.limits import LimitError, RenderingError
from app.rendering.locales import UnknownLanguageError, canonical
from app.rendering.variables import check
from app.services.accept.submission import Submission
from app.services.refusal import Problem, Refused

UTC = "UTC"


class Writing:
    """Fills in what a submission says."""

    def __init__(self, library: Library) -> None:
        self._library = library

    def inline(self, submission: Submission) -> Submission:
        """Return it with clean HTML and a text beside that; raise Refused for nothing to send."""
        if submission.html is not None:
            submission = _with_clean_html(submission, submission.html)
        if not submission.body.strip():
            raise Refused(
                "DOMAIN_CONTENT_EMPTY", "There is nothing to send.", [Problem("content.body", "must not be blank")]
            )
        if Channel.EMAIL in submission.all_channels and not submission.title.strip():
            raise Refused(
                "DOMAIN_CONTENT_EMPTY",
                "An e-mail needs a title.",
                [Problem("content.title", "must not be blank for EMAIL")],
            )
        return submission

    def templated(
        self, submission: Submission, version: Version | None, user: KnownUser | None, *, check_all: bool = True
    ) -> Submission:
        """Return it with version, language, zone and the text that is stored.

        With `check_all` every channel is rendered to see whether it can be. Raises Refused.
        """
        if version is None:
            raise Refused(
                "DOMAIN_TEMPLATE_NOT_FOUND", "There is no such template.", [Problem("template", "does not exist")]
            )
        locale = _locale(submission, user) or version.default_locale
        absent = [each for each in submission.all_channels if version.language(each.value, locale) is None]
        if absent:
            raise Refused(
                "DOMAIN_TEMPLATE_CHANNEL_MISSING",
                "The template has no body for a channel.",
                [Problem("channels", f"{each} has no body in the template") for each in absent],
            )
        values = check(version.variables, submission.payload)
        if values.missing:
            raise Refused(
                "DOMAIN_TEMPLATE_VARIABLES_MISSING",
                "The template needs values that the payload does not have.",
                [Problem(f"payload.{name}", "is required by the template") for name in values.missing],
            )
        if values.misfits:
            raise Refused(
                "DOMAIN_TEMPLATE_VARIABLES_INVALID",
                "A value is not of the type that the template declares.",
                [Problem(f"payload.{name}", what) for name, what in values.misfits.items()],
            )
        zone = known_zone(None if user is None else user.time_zone)
        shown = Channel.IN_APP if Channel.IN_APP in submission.all_channels else submission.all_channels[0]
        contents = {
            channel: self._render(version, channel, locale, values.values, zone)
            for channel in (submission.all_channels if check_all else (shown,))
        }
        return replace(
            submission,
            title=contents[shown].title,
            body=contents[shown].body,
            template_version=version.number,
            locale=locale,
            time_zone=zone.key,
        )

    def _render(
        self, version: Version, channel: Channel, locale: str, values: Mapping[str, Any], zone: ZoneInfo
    ) -> Content:
        try:
            return self._library.render(version, channel.value, locale, values, zone)
        except EmptyContentError as error:
            problem = Problem(f"template.{channel}", str(error))
            raise Refused("DOMAIN_CONTENT_EMPTY", "There is nothing to send.", [problem]) from error
        except RenderingError as error:
            problem = Problem(f"template.{channel}", str(error))
            raise Refused(
                "DOMAIN_TEMPLATE_RENDERING", "The template cannot be rendered with this payload.", [problem]
            ) from error


def known_zone(name: str | None) -> ZoneInfo:
    """Return a zone, or UTC for one that the IANA database does not have any more."""
    try:
        return ZoneInfo(name or UTC)
    except (KeyError, ValueError, OSError):
        return ZoneInfo(UTC)


def _locale(submission: Submission, user: KnownUser | None) -> str | None:
    """Return the reader's language: the one asked for, or the user's own."""
    if submission.locale is not None:
        try:
            return canonical(submission.locale)
        except UnknownLanguageError:
            problem = Problem("locale", "is no language that is known; write it like pt-BR")
            raise Refused("DOMAIN_LOCALE_UNKNOWN", "There is no such language.", [problem]) from None
    try:
        return canonical(user.locale) if user is not None and user.locale else None
    except UnknownLanguageError:
        return None


def _with_clean_html(submission: Submission, html: str) -> Submission:
    try:
        clean = sanitise(html)
    except LimitError as error:
        problem = Problem("content.html", str(error))
        raise Refused("DOMAIN_CONTENT_INVALID", "The HTML cannot be read.", [problem]) from error
    if not has_content(clean):
        return replace(submission, html=None)
    return replace(submission, html=clean, body=submission.body or alternative(clean) or submission.title)
