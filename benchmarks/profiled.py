"""The server under cProfile: `python -m benchmarks.profiled OPTIONS`, with the folder for results in BENCHMARKS_PROFILE.

A SIGUSR1 begins what is seen and the next one ends it, as often as one likes; a file tells that it has been heard. The event
loop's thread and the writer's have a profile each.
"""

import cProfile
import os
import signal
from pathlib import Path
from typing import Any

from bucketd.server.__main__ import main
from bucketd.storage.lmdb_engine import LmdbEngine


class _Profiles:
    """The profiles of one stretch of time after another."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._number = 0
        self._loop: cProfile.Profile | None = None
        self._writer: cProfile.Profile | None = None

    def toggle(self, *_: Any) -> None:
        """Begin, or end and write down."""
        if self._loop is None:
            self._writer = cProfile.Profile()
            (self._folder / f"{self._number}-begun").touch()
            self._loop = cProfile.Profile()
            self._loop.enable()
            return
        self._loop.disable()
        writer, self._writer = self._writer, None
        for name, found in (("event loop", self._loop), ("writer", writer)):
            if found is not None and found.getstats():
                found.dump_stats(str(self._folder / f"{self._number}-{name}.prof"))
        self._loop = None
        (self._folder / f"{self._number}-ended").touch()
        self._number += 1

    def watch(self, commit_group: Any) -> Any:
        """The function of the writer's thread, seen while anything is."""

        def watched(engine: Any, works: Any) -> None:
            profile = self._writer
            if profile is None:
                commit_group(engine, works)
                return
            profile.enable()
            try:
                commit_group(engine, works)
            finally:
                profile.disable()

        return watched


if __name__ == "__main__":
    profiles = _Profiles(Path(os.environ["BENCHMARKS_PROFILE"]))
    LmdbEngine.commit_group = profiles.watch(LmdbEngine.commit_group)  # type: ignore[method-assign]
    signal.signal(signal.SIGUSR1, profiles.toggle)
    main()
