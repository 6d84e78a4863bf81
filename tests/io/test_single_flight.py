"""Shared work: one result for all callers, and nothing left behind."""

from __future__ import annotations

import asyncio

import pytest

from fcjax.io.single_flight import SingleFlight


def test_work_that_is_closed_before_its_first_step_is_not_joined_later():
    async def make():
        return 1

    async def main():
        flights: SingleFlight[int] = SingleFlight()
        caller = asyncio.create_task(flights.get("key", make))
        await asyncio.sleep(0)  # the caller waits, and its work has not begun
        await flights.close()
        with pytest.raises(asyncio.CancelledError):
            await caller
        return await flights.get("key", make)

    assert asyncio.run(main()) == 1
