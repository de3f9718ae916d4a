"""Runs in the child between fork and exec: drops privileges, ties the child's life to its parent's, then execs.

It is a script of its own (standard library, no imports of ours) because code between fork and exec inside a
threaded parent may deadlock. The pid stays the same, so what the parent holds is the pid of the server itself.
"""

import argparse
import contextlib
import ctypes
import os
import sys

_PR_SET_PDEATHSIG = 1
_PR_SET_KEEPCAPS = 8
_PR_CAP_AMBIENT = 47
_PR_CAP_AMBIENT_RAISE = 2
_CAP_DAC_OVERRIDE = 1
_CAP_DAC_READ_SEARCH = 2
_CAPABILITY_VERSION_3 = 0x20080522


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Data(ctypes.Structure):
    _fields_ = (
        ("effective", ctypes.c_uint32),
        ("permitted", ctypes.c_uint32),
        ("inheritable", ctypes.c_uint32),
    )


def become(uid: int, gid: int, *, may_search: bool) -> None:
    """Give up root for `uid`; with `may_search`, keep only the right to pass through folders closed to that user.

    PostgreSQL refuses to run as root, but a project of root's often lies in a folder that only root may enter,
    such as root's home. One ambient capability opens the way without changing the mode of anybody's folders.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if may_search:
        libc.prctl(_PR_SET_KEEPCAPS, 1, 0, 0, 0)
    os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    if not may_search:
        return
    header = _Header(_CAPABILITY_VERSION_3, 0)
    held = (_Data * 2)()
    libc.capget(ctypes.byref(header), held)
    for capability in (_CAP_DAC_READ_SEARCH, _CAP_DAC_OVERRIDE):
        bit = 1 << capability
        if held[0].permitted & bit:
            kept = (_Data * 2)(_Data(bit, bit, bit), _Data(0, 0, 0))
            libc.capset(ctypes.byref(header), kept)
            libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE, capability, 0, 0)
            return


def die_with_parent(signal_number: int, parent: int) -> None:
    """Ask the kernel for `signal_number` when the parent dies, and leave at once if it has died already."""
    with contextlib.suppress(
        AttributeError, OSError
    ):  # Linux only; elsewhere the sweep of the next start cleans up
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal_number, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit(1)


def main() -> None:
    """Read the options, become what they say, and turn into the command."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--signal", type=int, required=True)
    parser.add_argument("--parent", type=int, required=True)
    parser.add_argument("--nice", type=int, default=0)
    parser.add_argument("--uid", type=int)
    parser.add_argument("--gid", type=int)
    parser.add_argument("--search", action="store_true")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    os.nice(options.nice)
    if options.uid is not None:
        become(options.uid, options.gid, may_search=options.search)
    # After the change of user: the kernel forgets the death signal when credentials change.
    die_with_parent(options.signal, options.parent)
    os.execvp(command[0], command)  # noqa: S606  the command is the parent's own, no shell is wanted


if __name__ == "__main__":
    main()
