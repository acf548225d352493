"""What `ps` and `top` show of a process."""

from __future__ import annotations

from setproctitle import setproctitle, setthreadtitle


def set_title(title: str) -> None:
    """
    Gives this process a title, and the thread that asks for it a name without spaces: Python 3.12 and later look for
    the number of threads in a line that begins with that name, and warn of a fork of several where it has two.
    """
    setproctitle(title)
    setthreadtitle(title.replace(": ", ":").replace(" ", "-"))  # the kernel keeps 15 bytes
