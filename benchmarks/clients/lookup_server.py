"""The loopback server with finer timers; it takes what ``tests.support.faults`` takes.

Waiting by epoll, as asyncio does, takes whole milliseconds, and makes 30 MB/s of the 40 that were meant.
"""

import asyncio
import selectors

from tests.support import faults


class _Punctual(asyncio.DefaultEventLoopPolicy):
    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        return asyncio.SelectorEventLoop(selectors.SelectSelector())


if __name__ == "__main__":
    asyncio.set_event_loop_policy(_Punctual())
    faults.main()
