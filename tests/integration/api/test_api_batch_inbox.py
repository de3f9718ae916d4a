"""A batch that fills inboxes: their items say what the batch says, and no kept count outlives it."""

from collections.abc import Callable

from sqlalchemy.engine import Engine

from app.wiring import arrivals
from tests.batch_parts import add_users, make_expander
from tests.integration.api.conftest import Api
from tests.integration.api.test_api_batches import Batches, to_segment


def test_a_batch_comes_into_inboxes_and_their_counts(
    make_api: Callable[..., Api], redis_url: str, database_url: str, engine: Engine
) -> None:
    """Fails when the expander's transaction is not announced: the count that was kept before would still be 0."""
    api = make_api(redis_url=redis_url)
    add_users(engine, 3)
    unread = "/v1/notifications/unread-count?user_id=u0000001"
    assert api.get(unread).get_json()["unread"] == 0
    batch = Batches(api).accepted(to_segment(channels=["IN_APP"]))
    expander = make_expander(database_url, arrivals=arrivals(api.settings))
    while expander.step():
        pass
    assert Batches(api).view(batch)["state"] == "COMPLETED"
    assert api.get(unread).get_json()["unread"] == 1
    (item,) = api.get("/v1/users/u0000001/inbox").get_json()["data"]
    assert item["content"]["title"] == "Sale"
    (listed,) = api.get("/v1/notifications?user_id=u0000002").get_json()["data"]
    assert listed["content"] == {"title": "Sale", "body": "Everything must go."}
