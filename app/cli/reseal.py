"""`arauto reseal`: after a change of keys, seal with the new one what the old ones sealed."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.cli.output import WRONG, print_json

if TYPE_CHECKING:
    from app.services.reseal import Census, Reseal


def reseal(
    *,
    check: Annotated[
        bool, typer.Option("--check", help="Only count the values of each key; exit 1 if any is not the newest's.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Answer in JSON.")] = False,
) -> None:
    """Seal anew with the first of ENCRYPTION_KEYS whatever another key sealed.

    It runs beside traffic, and may be stopped and started again at any time. When --check counts nothing of a key
    any more, that key can be taken out of ENCRYPTION_KEYS.

    Example: arauto reseal && arauto reseal --check --json
    """
    from app.cli.services import services  # noqa: PLC0415

    use_case = services().reseal
    before = use_case.census()
    if check:
        _tell(use_case, before, as_json=as_json)
        if any(_behind(use_case, each) for each in before):
            raise typer.Exit(WRONG)
        return
    total = sum(_behind(use_case, each) for each in before)
    with _progress(total, quiet=as_json) as (progress, task):
        results = use_case.run(lambda _column, count: progress.advance(task, count))
    lost = sum(sum(each.lost.values()) for each in results)
    if as_json:
        print_json(
            {
                "key": use_case.vault.sealing_key,
                "columns": [
                    {
                        "column": each.column,
                        "resealed": each.resealed,
                        "changed_meanwhile": each.changed_meanwhile,
                        "lost": {str(key): count for key, count in sorted(each.lost.items())},
                    }
                    for each in results
                ],
            }
        )
    else:
        for each in results:
            typer.echo(f"{each.column}: {each.resealed:,} sealed anew with key {use_case.vault.sealing_key}")
            for key, count in sorted(each.lost.items()):
                typer.echo(
                    f"{each.column}: {count:,} of key {key} do not open and were left as they are", err=True
                )
    if lost:
        typer.echo(
            f"arauto: {lost:,} values do not open\n"
            "  → put the keys that are missing back into ENCRYPTION_KEYS, and run this again",
            err=True,
        )
        raise typer.Exit(WRONG)


def _behind(use_case: "Reseal", census: "Census") -> int:
    return sum(count for key, count in census.by_key.items() if key != use_case.vault.sealing_key)


def _tell(use_case: "Reseal", found: "list[Census]", *, as_json: bool) -> None:
    if as_json:
        columns = [
            {"column": each.column, "by_key": {str(key): count for key, count in each.by_key.items()}}
            for each in found
        ]
        print_json({"key": use_case.vault.sealing_key, "columns": columns})
        return
    for each in found:
        counts = ", ".join(f"key {key}: {count:,}" for key, count in each.by_key.items()) or "nothing"
        typer.echo(f"{each.column}: {counts}")
    typer.echo(f"New values are sealed with key {use_case.vault.sealing_key}.")


def _progress(total: int, *, quiet: bool) -> Any:
    from app.cli.progress import progress_bar  # noqa: PLC0415

    return progress_bar("Sealing anew", total, quiet=quiet)
