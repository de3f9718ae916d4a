"""Users and devices put straight into the tables, sealed as the service seals them."""

from uuid import UUID

from sqlalchemy.engine import Engine

from app.domain.ids import mint
from app.sealing import context
from tests.sealed import VAULT


def add_user(
    engine: Engine,
    user_id: str,
    *,
    email: str | None = None,
    phone: str | None = None,
    status: str = "ACTIVE",
    tenant: str = "demo",
    time_zone: str | None = None,
) -> None:
    """Store a user of `tenant`."""
    values = {"tenant": tenant, "id": user_id, "status": status, "zone": time_zone}
    for kind, text in (("email", email), ("phone", phone)):
        values[kind] = None if text is None else VAULT.seal(context(kind, tenant, user_id), text.encode())
        values[f"{kind}_index"] = None if text is None else VAULT.index(tenant, kind, text)
    with engine.begin() as connection:
        connection.exec_driver_sql(
            "INSERT INTO app_user (tenant_id, id, status, email, email_index, phone, phone_index, time_zone)"
            " VALUES (%(tenant)s, %(id)s, %(status)s, %(email)s, %(email_index)s, %(phone)s, %(phone_index)s,"
            " %(zone)s)",
            values,
        )


def add_device(engine: Engine, user_id: str, token: str, *, tenant: str = "demo", is_muted: bool = False) -> UUID:
    """Store a device of a stored user and return its id."""
    (identifier,) = mint()
    with engine.begin() as connection:
        connection.exec_driver_sql(
            "INSERT INTO device (tenant_id, user_id, id, platform, token, token_index, is_muted)"
            " VALUES (%(tenant)s, %(user)s, %(id)s, 'IOS', %(token)s, %(index)s, %(muted)s)",
            {
                "tenant": tenant,
                "user": user_id,
                "id": str(identifier),
                "token": VAULT.seal(context("device", tenant, str(identifier)), token.encode()),
                "index": VAULT.index(tenant, "device", token),
                "muted": is_muted,
            },
        )
    return identifier
