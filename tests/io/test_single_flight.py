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


def made(uses, **settings):
    """The keys that were made, in order, where `uses` are asked for one after the other."""
    keys = []

    async def main():
        flights: SingleFlight[str] = SingleFlight(**settings)

        async def make(key):
            keys.append(key)
            return key

        for key in uses:
            assert await flights.get(key, lambda key=key: make(key)) == key
        return flights.shared

    shared = asyncio.run(main())
    assert shared == len(uses) - len(keys)
    return "".join(keys)


def test_the_results_used_last_are_kept():
    assert made("abab", most=2) == "ab"
    assert made("abacab", most=2) == "abcb"  # a was used after b, which goes as c comes
    assert made("aa", most=0) == "aa"


def test_only_results_that_are_worth_it_are_kept():
    assert made("abab", most=2, keep=lambda result: result != "b") == "abb"
