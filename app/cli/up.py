"""`arauto up`: the whole service on one machine, servers included."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Broker(StrEnum):
    """Which Kafka the stack runs on."""

    AUTO = "auto"
    KAFKA = "kafka"
    LIGHT = "light"


def up(
    data: Annotated[
        Path,
        typer.Option(help="Folder for all data and run.json; a second folder is a second, independent stack."),
    ] = Path(".arauto"),
    broker: Annotated[
        Broker, typer.Option(help="auto: Apache Kafka, or the light in-memory broker where Java cannot be had.")
    ] = Broker.AUTO,
) -> None:
    """Run everything: PostgreSQL, Valkey, Kafka, sandbox, API, beat, relay, bridge, workers and Flower.

    Prints the addresses, a token and a curl line when ready. Ctrl-C stops all of it; data stays in the folder.
    DATABASE_URL, REDIS_URL and KAFKA_BOOTSTRAP_SERVERS, where set, are used instead of servers of its own.

    Example: arauto up --data /tmp/second --broker light
    """
    from embedded.supervisor import run_stack  # noqa: PLC0415  loads the servers' packages

    raise typer.Exit(run_stack(data.resolve(), broker.value))
