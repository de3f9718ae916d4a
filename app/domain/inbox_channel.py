"""The name under which the news of one user's inbox is published in Redis, and subscribed to.

The name is a digest: of fixed length whatever ids look like, and it shows neither tenant nor user to who can list
the channels of the server.
"""

import hashlib

_DIGITS = 32


def inbox_channel(tenant_id: str, user_id: str) -> str:
    """Return the channel of a user. A NUL can be in neither id, so no two users share one."""
    who = f"{tenant_id}\0{user_id}".encode(errors="surrogatepass")
    return "inbox:" + hashlib.sha256(who).hexdigest()[:_DIGITS]
