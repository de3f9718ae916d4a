"""A process that forks after its first use of the database: each child builds its own parts and shares nothing."""

import json
import os
import subprocess
import sys

FORKING = """
import json, os, signal
from app.settings import Settings
from app.wiring import api_services

settings = Settings(_env_file=None)
signal.alarm(60)


def ask(number):
    def own(cursor):
        cursor.execute("SELECT pg_backend_pid(), %s", (number,))
        return cursor.fetchone()

    return api_services(settings).accept._pool.run(own)


def backends():
    answers = [ask(os.getpid() * 1000 + number) for number in range(200)]
    assert [each[1] for each in answers] == [os.getpid() * 1000 + number for number in range(200)]
    return sorted({each[0] for each in answers})


before = backends()
readers = {}
for _ in range(8):
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(30)
        os.write(writer, json.dumps(backends()).encode())
        os._exit(0)
    os.close(writer)
    readers[child] = reader
codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in readers]
print(json.dumps([codes, before, backends(), [json.loads(os.read(each, 1000)) for each in readers.values()]]))
"""


def test_no_connection_is_shared_over_a_fork(database_url, redis_url):
    """Case F01. The parent has used its pool; eight children ask 200 times each, on backends of their own.

    Fails when parts are remembered by their settings alone: children would talk over the parent's socket.
    """
    environment = {
        **os.environ,
        "DATABASE_URL": database_url,
        "REDIS_URL": redis_url,
        "TRANSPORT": "direct",
        "API_DATABASE_POOL": "2",
    }
    answer = subprocess.run(
        [sys.executable, "-c", FORKING], env=environment, capture_output=True, text=True, timeout=90, check=True
    )
    codes, before, after, children = json.loads(answer.stdout)
    assert codes == [0] * 8
    assert before == after, "the parent's own connection outlived its children"
    seen = [backend for child in children for backend in child]
    assert len(set(seen)) == len(seen) >= 8
    assert not set(seen) & set(before)
