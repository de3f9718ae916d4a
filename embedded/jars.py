"""Fetches the jars of Apache Kafka once, checks each by SHA-256, and keeps them in the user's cache.

The list and the sums are pinned in `kafka_jars.lock`. Maven fetches them where there is one, with the user's own
settings; else the wheel `maven-artifact` does, from MAVEN_REPOSITORY_URL or from where that package looks by
itself. A jar whose sum differs is never put in place. Run as a module, this writes the lock anew with Maven.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from embedded.server import Say, ServerError

KAFKA = "org.apache.kafka:kafka_2.13:4.3.1"
_LOGGING = "org.slf4j:slf4j-simple:1.7.36"
_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1"
_LOCK = Path(__file__).with_name("kafka_jars.lock")


@dataclass(frozen=True, slots=True)
class Jar:
    """One pinned file of the class path."""

    group: str
    artifact: str
    version: str
    sha256: str

    @property
    def coordinate(self) -> str:
        """The name as Maven writes it."""
        return f"{self.group}:{self.artifact}:{self.version}"

    @property
    def file_name(self) -> str:
        """The file's name, unique in the class path."""
        return f"{self.artifact}-{self.version}.jar"


def pinned(lock: Path = _LOCK) -> list[Jar]:
    """Return the jars of the lock file."""
    jars = []
    for line in lock.read_text().splitlines():
        if line and not line.startswith("#"):
            coordinate, digest = line.split()
            group, artifact, version = coordinate.split(":")
            jars.append(Jar(group, artifact, version, digest.removeprefix("sha256:")))
    return jars


def default_cache() -> Path:
    """Return the user's cache folder for the jars."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "arauto" / "jars"


def class_path(jars: Iterable[Jar], folder: Path) -> str:
    """Return the Java class path of the jars in `folder`."""
    return os.pathsep.join(str(folder / jar.file_name) for jar in jars)


def is_intact(jar: Jar, folder: Path) -> bool:
    """Return whether the file is there with the pinned sum."""
    try:
        with (folder / jar.file_name).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == jar.sha256
    except OSError:
        return False


def fetch(jars: Sequence[Jar], folder: Path, repository: str, say: Say) -> None:
    """Bring all `jars` into `folder`; raise ServerError naming what each way answered."""
    folder.mkdir(parents=True, exist_ok=True)
    with _only_one(folder):
        missing = [jar for jar in jars if not is_intact(jar, folder)]
        if not missing:
            return
        refusals: list[str] = []
        ways: list[Callable[[Sequence[Jar], Path, str, Say], None]] = [_by_wheel]
        if shutil.which("mvn") and not repository:
            ways.insert(0, _by_maven)
        for way in ways:
            with tempfile.TemporaryDirectory(dir=folder) as scratch:
                try:
                    way(missing, Path(scratch), repository, say)
                except (OSError, ServerError, subprocess.SubprocessError) as error:
                    refusals.append(f"{way.__name__.removeprefix('_by_')}: {error}")
                missing = _adopt(missing, Path(scratch), folder, refusals)
            if not missing:
                say(f"Apache Kafka's {len(jars)} jars are in {folder}")
                return
        raise ServerError("Apache Kafka's jars could not be had: " + "; ".join(refusals))


def _adopt(jars: Sequence[Jar], scratch: Path, folder: Path, refusals: list[str]) -> list[Jar]:
    """Move what is intact into place; return what is still missing."""
    missing: list[Jar] = []
    for jar in jars:
        if is_intact(jar, scratch):
            (scratch / jar.file_name).replace(folder / jar.file_name)
            continue
        missing.append(jar)
        if (scratch / jar.file_name).exists():
            refusals.append(f"{jar.coordinate} has another SHA-256 than the lock says")
    return missing


@contextmanager
def _only_one(folder: Path) -> Iterator[None]:
    """Let one stack at a time fetch into the shared cache."""
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _by_maven(jars: Sequence[Jar], scratch: Path, repository: str, say: Say) -> None:
    del repository  # Maven's own settings know the repositories
    (scratch / "pom.xml").write_text(_pom([jar.coordinate for jar in jars], is_transitive=False))
    command = ["mvn", "-B", "-f", str(scratch / "pom.xml"), f"{_PLUGIN}:copy-dependencies"]
    with subprocess.Popen(
        [*command, f"-DoutputDirectory={scratch}"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as maven:
        last = _watch_maven(maven, len(jars), say)
    if maven.returncode:
        raise ServerError(f"mvn ended with {maven.returncode}: {last}")


def _watch_maven(maven: "subprocess.Popen[str]", total: int, say: Say) -> str:
    assert maven.stdout is not None
    done = 0
    error = ""
    for line in maven.stdout:
        if line.startswith("Downloaded from") and ".jar " in line:
            done += 1
            say(f"fetching Apache Kafka with Maven: {done} files ({total} jars and Maven's own plugin)")
        elif line.startswith("[ERROR]") and not error:
            error = line.removeprefix("[ERROR]").strip()[:300]
    return error


def _by_wheel(jars: Sequence[Jar], scratch: Path, repository: str, say: Say) -> None:
    from maven_artifact.artifact import Artifact  # noqa: PLC0415  slow to import, needed only at the first start
    from maven_artifact.downloader import Downloader  # noqa: PLC0415
    from maven_artifact.requestor import RequestException  # noqa: PLC0415

    downloader = Downloader(base=repository) if repository else Downloader()

    def one(jar: Jar) -> None:
        address = downloader.resolver.uri_for_artifact(Artifact.parse(jar.coordinate))
        answer = downloader.requestor.request(address, onFail=None, timeout=(5, 60))
        (scratch / jar.file_name).write_bytes(answer.content)

    with ThreadPoolExecutor(6) as pool:
        running = [pool.submit(one, jar) for jar in jars]
        try:
            for done, future in enumerate(as_completed(running), 1):
                future.result()
                say(f"fetching Apache Kafka: {done} of {len(jars)} jars")
        except RequestException as error:
            raise ServerError(str(error.msg)) from error
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _pom(coordinates: Sequence[str], *, is_transitive: bool) -> str:
    """Return a project that depends on exactly these files, or on them and all that they need."""
    alone = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
    dependencies = ""
    for coordinate in coordinates:
        group, artifact, version = coordinate.split(":")
        dependencies += f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
        dependencies += f"<version>{version}</version>{'' if is_transitive else alone}</dependency>"
    return (
        "<project><modelVersion>4.0.0</modelVersion><groupId>arauto</groupId><artifactId>jars</artifactId>"
        f"<version>1</version><packaging>pom</packaging><dependencies>{dependencies}</dependencies></project>"
    )


def write_lock(lock: Path = _LOCK) -> int:
    """Resolve the runtime class path with Maven and pin it; return how many jars it has."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "pom.xml").write_text(_pom([KAFKA, _LOGGING], is_transitive=True))
        options = ["-DincludeScope=runtime", f"-DoutputDirectory={folder}/jars", "-Dmdep.useRepositoryLayout=true"]
        command = ["mvn", "-B", "-q", "-f", str(folder / "pom.xml"), f"{_PLUGIN}:copy-dependencies", *options]
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
        lines = []
        for file in sorted((folder / "jars").rglob("*.jar")):
            *group, artifact, version, _ = file.relative_to(folder / "jars").parts
            digest = hashlib.sha256(file.read_bytes()).hexdigest()
            lines.append(f"{'.'.join(group)}:{artifact}:{version} sha256:{digest}\n")
    head = f"# The runtime class path of {KAFKA} with {_LOGGING} for its log.\n"
    lock.write_text(head + "# Written by: python -m embedded.jars\n" + "".join(lines))
    return len(lines)


if __name__ == "__main__":
    sys.stdout.write(f"{write_lock()} jars pinned in {_LOCK}\n")
