"""`arauto bridge` and `arauto topics`: the Kafka side of the pipeline."""

from typing import Annotated

import typer

from app.cli.output import fail, print_json


def bridge(
    topic: Annotated[
        list[str] | None, typer.Option(help="Only this topic; may be repeated. All three if none.")
    ] = None,
) -> None:
    """Hand deliveries from Kafka to the Celery queues until told to stop; one loop a topic.

    Start as many as you like, on as many machines: they share the partitions.

    Example: arauto bridge --topic notifications.high
    """
    from app.bridge import run  # noqa: PLC0415  loads the Kafka client
    from app.queues import TOPIC_LANES  # noqa: PLC0415
    from app.settings import get_settings  # noqa: PLC0415

    wanted = list(topic or TOPIC_LANES)
    if unknown := sorted(set(wanted) - set(TOPIC_LANES)):
        fail(f"no such topic: {', '.join(unknown)}", f"choose from {', '.join(TOPIC_LANES)}")
    settings = get_settings()
    if settings.transport == "direct":
        fail("TRANSPORT=direct does without Kafka, so there is nothing to bridge", "set TRANSPORT=kafka to use it")
    raise typer.Exit(run(settings, wanted))


def topics(
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Answer in JSON.")] = False,
) -> None:
    """Create the topics that are missing, with the partitions and replication of the settings.

    Example: arauto topics --json
    """
    from app.cli.services import quiet_settings  # noqa: PLC0415
    from app.kafka.topics import ensure_topics  # noqa: PLC0415  loads the Kafka client

    made = ensure_topics(quiet_settings())
    if as_json:
        print_json({"created": sorted(made)})
    else:
        typer.echo(f"Created {', '.join(sorted(made))}." if made else "All topics are there already.")
