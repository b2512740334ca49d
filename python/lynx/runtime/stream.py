"""The decode loop's events for asynchronous code."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Generator
from concurrent.futures import ThreadPoolExecutor

from lynx.runtime.events import Event


async def stream(events: Generator[Event, None, None]) -> AsyncGenerator[Event, None]:
    """Run a decode loop on a thread of its own, and yield its events as they come.

        async with contextlib.aclosing(stream(decode(receiver, engine, policy, max_tokens=64))) as events:
            async for event in events:
                ...

    The loop takes no step before the next event is asked for. Leaving early closes it, after the step that it is in;
    its errors are raised here. A step lasts until there is something to tell: where nothing arrives, up to the loop's
    `timeout_s`, unless the owner of the transfer cancels that.
    """
    thread = ThreadPoolExecutor(1, "lynx decode")
    loop = asyncio.get_running_loop()
    try:
        while (event := await loop.run_in_executor(thread, next, events, None)) is not None:
            yield event
    finally:
        try:
            await loop.run_in_executor(thread, events.close)
        finally:
            thread.shutdown(wait=False)
