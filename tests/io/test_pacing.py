"""Rate limits, concurrency, back-off and budget, by a clock that the test turns."""

from __future__ import annotations

import asyncio
import selectors
from random import Random
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fcjax.core.errors import SettingsError
from fcjax.core.prompts import Prompt, Reply
from fcjax.io.client import Client
from fcjax.io.outcome import Again
from fcjax.io.pacing import Budget, Concurrency, RateLimit, Retry


class TurnedClock:
    """Sleeping turns the clock: for code of which one task at a time sleeps."""

    def __init__(self):
        self.time = 1000.0

    def now(self):
        return self.time

    async def sleep(self, seconds):
        self.time += seconds
        await asyncio.sleep(0)


async def settled():
    """Let every task run until it waits for something."""
    for _ in range(20):
        await asyncio.sleep(0)


# Back-off


@given(st.integers(1, 7), st.none() | st.floats(0, 300), st.integers())
def test_waits_grow_within_bounds_and_never_undercut_the_server(failed, after, seed):
    retry = Retry(attempts=8, first=0.5, longest=10.0)
    wait = retry.delay(failed, after, Random(seed))
    if after is None:
        span = min(10.0, 0.5 * 2 ** (failed - 1))
        assert span / 2 <= wait <= span
    else:
        assert after <= wait <= after + 10.0


def test_waits_differ():
    retry, random = Retry(), Random(0)
    for after in (None, 2.0):
        assert len({retry.delay(1, after, random) for _ in range(100)}) == 100


def test_gives_up():
    assert Retry(attempts=3).delay(3, None, Random(0)) is None
    assert Retry(patience=60.0).delay(1, 3600.0, Random(0)) is None
    with pytest.raises(SettingsError, match="at least 1 attempt"):
        Retry(attempts=0)


# Rate limits


def times_of(limit, clock, sizes, gaps=()):
    """When requests of so many tokens go out, each made `gap` seconds after the one before it."""

    async def go():
        times = []
        for i, size in enumerate(sizes):
            await limit.reserve(size)
            times.append(clock.now())
            clock.time += gaps[i] if i < len(gaps) else 0.0
        return times

    return asyncio.run(go())


@given(st.lists(st.floats(0, 30), max_size=60), st.sampled_from([30, 60, 600]))
def test_no_minute_has_more_requests_than_allowed(gaps, per_minute):
    clock = TurnedClock()
    times = times_of(RateLimit(requests=per_minute, clock=clock), clock, [1] * 80, gaps)
    for i, begin in enumerate(times):
        within = sum(1 for time in times[i:] if time < begin + 60 - 1e-6)
        assert within <= per_minute * 61 / 60 + 1  # the slack of one second, and one piece


@given(st.lists(st.integers(1, 3000), min_size=1, max_size=60))
def test_no_minute_has_more_tokens_than_allowed(sizes):
    clock = TurnedClock()
    times = times_of(RateLimit(tokens=6000, clock=clock), clock, sizes)
    for i, begin in enumerate(times):
        within = sum(size for time, size in zip(times[i:], sizes[i:], strict=True) if time < begin + 60 - 1e-6)
        assert within <= 6000 * 61 / 60 + max(sizes)


def test_limit_is_used_to_the_full():
    clock = TurnedClock()
    times = times_of(RateLimit(requests=600, clock=clock), clock, [1] * 1000)
    assert times[-1] - times[0] == pytest.approx(100, rel=0.03)


def test_what_was_reserved_too_much_comes_back():
    """Calls that reserve 600 tokens and use 100 go at the pace of 100."""
    clock = TurnedClock()
    limit = RateLimit(tokens=60_000, clock=clock)

    async def go():
        flying = []  # (end, reserved) of calls that take 0.1 s
        for _ in range(200):
            reserving = asyncio.create_task(limit.reserve(600))
            while not reserving.done():
                await asyncio.sleep(0)
                while flying and flying[0] <= clock.time:
                    flying.pop(0)
                    limit.settle(600, 100)
            flying.append(clock.time + 0.1)

    asyncio.run(go())
    assert clock.time - 1000 == pytest.approx(20, rel=0.15)


def test_a_settled_call_shortens_a_wait_that_has_begun():
    """600 tokens at 10 per second are a minute's wait for the next one; of 10 tokens used, it is none."""
    clock = TurnedClock()
    limit = RateLimit(tokens=600, clock=clock)

    async def go():
        await limit.reserve(600)
        waiting = asyncio.create_task(limit.reserve(1))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not waiting.done()
        limit.settle(600, 10)
        await waiting

    asyncio.run(go())
    assert clock.time - 1000 < 1


def test_first_come_first_served():
    clock = TurnedClock()
    limit, order = RateLimit(requests=60, clock=clock), []

    async def one(i):
        await limit.reserve(1)
        order.append(i)

    async def go():
        await asyncio.gather(*map(one, range(20)))

    asyncio.run(go())
    assert order == list(range(20))


@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf")])
def test_odd_rates_are_refused(value):
    with pytest.raises(SettingsError, match="per minute"):
        RateLimit(requests=value)


# Concurrency


def machine(**settings):
    clock = TurnedClock()
    return Concurrency(16, clock=clock, **{"cool_down": 5.0, **settings}), clock


def test_overload_cuts_once_a_cool_down():
    slots, clock = machine()
    slots.overloaded()
    assert slots.limit == 8
    slots.overloaded()  # was on the wire with the first one
    clock.time += 4.9
    slots.overloaded()
    assert slots.limit == 8
    clock.time += 0.2
    slots.overloaded()
    assert slots.limit == 4


def test_limit_grows_by_one_a_round_after_the_cool_down():
    slots, clock = machine()
    slots.overloaded()
    for _ in range(100):
        slots.succeeded()
    assert slots.limit == 8
    clock.time += 5
    for _ in range(8):
        slots.succeeded()
    assert slots.limit == pytest.approx(9, abs=0.1)
    for _ in range(1000):
        slots.succeeded()
    assert slots.limit == 16


def test_a_cut_begins_a_new_round():
    """What was turned away before the cut does not count again: 1 call of 4 is tolerated, 2 of 5 are not."""
    slots, clock = machine()
    slots.overloaded()
    assert slots.limit == 8
    clock.time += 5
    for _ in range(3):
        slots.succeeded()
    before = slots.limit
    slots.overloaded()
    assert slots.limit == before
    slots.overloaded()  # 2 of 5
    assert slots.limit == pytest.approx(before * 3 / 5)


def test_limit_stays_within_its_bounds():
    slots, clock = machine(least=3)
    for _ in range(10):
        slots.overloaded()
        clock.time += 6
    assert slots.limit == 3


@given(
    st.lists(st.tuples(st.sampled_from(["ok", "overload", "enter", "leave", "cancel"]), st.floats(0, 4)), max_size=80)
)
def test_slots_and_limit_at_any_time(events):
    """Never more in flight than the limit when one entered, nobody waits while there is room, nothing is lost."""

    async def go():
        slots, clock = machine()
        inside, waiting = [], []

        async def one(leave):
            async with slots:
                assert slots.in_flight <= slots.limit
                inside.append(leave)
                try:
                    await leave.wait()
                finally:
                    inside.remove(leave)

        for event, seconds in events:
            clock.time += seconds
            before = slots.limit
            match event:
                case "ok":
                    slots.succeeded()
                    assert before <= slots.limit <= before + 1
                case "overload":
                    slots.overloaded()
                    assert max(1, before / 2) <= slots.limit <= before
                case "enter":
                    waiting.extend(asyncio.create_task(one(asyncio.Event())) for _ in range(3))
                case "leave" if inside:
                    inside[0].set()
                case "cancel" if waiting:
                    waiting.pop(len(waiting) // 2).cancel()
            await settled()
            assert slots.in_flight == len(inside)
            outside = sum(not task.done() for task in waiting) - len(inside)
            assert outside <= 0 or slots.in_flight + 1 > slots.limit
            assert 1 <= slots.limit <= 16
        while inside:
            for leave in inside:
                leave.set()
            await settled()
        assert slots.in_flight == 0
        assert all(task.done() for task in waiting)

    asyncio.run(go())


class TurnedLoop(asyncio.SelectorEventLoop):
    """An event loop that turns its clock instead of waiting: hours of any code pass in no time."""

    class Selector(selectors.DefaultSelector):
        time = 0.0

        def select(self, timeout=None):
            self.time += timeout or 0.0
            return super().select(0)

    def __init__(self):
        self.selector = self.Selector()
        super().__init__(self.selector)

    def time(self):
        return self.selector.time


class Busy:
    """A server that takes a second for an answer, and turns calls away: a share of them by chance, and all that come
    while it has `room` calls already. `refusal` is the seconds that this takes."""

    name = model = "busy"

    def __init__(self, *, share=0.0, room=10**6, refusal=0.01, seed=0):
        self.share, self.room, self.refusal, self.random = share, room, refusal, Random(seed)
        self.inside = 0

    async def send(self, prompt):
        if self.inside >= self.room or self.random.random() < self.share:
            await asyncio.sleep(self.refusal)
            return Again("rate_limit", "busy")
        self.inside += 1
        await asyncio.sleep(self.random.uniform(0.8, 1.2))
        self.inside -= 1
        return Reply(text="ok")

    async def close(self):
        pass


def limits_of(server, most, prompts):
    """The limit at every second of a run of the client, once it has had time to settle, and the client's stats."""

    async def go():
        clock = SimpleNamespace(now=asyncio.get_running_loop().time, sleep=asyncio.sleep)
        slots, limits = Concurrency(most, clock=clock), []

        async def watch():
            while True:
                limits.append(slots.limit)
                await asyncio.sleep(1)

        watching = asyncio.create_task(watch())
        async with Client(server, concurrency=slots, clock=clock, random=Random(1)) as client:
            texts = (Prompt(messages=(("user", str(i)),), template="test/1") for i in range(prompts))
            async for _ in client.ask_all(texts, prompt=lambda prompt: prompt):
                pass
        watching.cancel()
        return limits[len(limits) // 3 :], client.stats

    with asyncio.Runner(loop_factory=TurnedLoop) as runner:
        return runner.run(go())


@pytest.mark.parametrize("refusal", [0.01, 1.0])
@pytest.mark.parametrize("most", [4, 16, 64])
def test_calls_turned_away_by_chance_leave_the_concurrency_useful(most, refusal):
    limits, stats = limits_of(Busy(share=0.2, refusal=refusal), most, 60 * most)
    assert stats.answered == 60 * most
    assert sum(limits) / len(limits) > most / 2
    assert min(limits) >= most / 4


@pytest.mark.parametrize(("refusal", "most_over"), [(0.01, 1.25), (1.0, 2.0)])
@pytest.mark.parametrize("room", [8, 16])
def test_limit_goes_to_what_the_server_has_room_for(room, refusal, most_over):
    """Where it turns away as slowly as it answers, a quarter of the calls, which is tolerated, may be too many."""
    limits, stats = limits_of(Busy(room=room, refusal=refusal), 64, 60 * room)
    assert stats.answered >= 0.97 * 60 * room
    assert 0.6 * room < sum(limits) / len(limits) < 1.5 * room
    assert max(limits) <= most_over * room


def test_a_slot_that_is_granted_to_a_cancelled_waiter_is_passed_on():
    async def go():
        slots = Concurrency(1)
        await slots.__aenter__()
        first, second = (asyncio.create_task(slots.__aenter__()) for _ in range(2))
        await settled()
        await slots.__aexit__()  # grants the slot to the first,
        first.cancel()  # which is cancelled before it runs
        await settled()
        assert first.cancelled()
        assert second.done()
        assert slots.in_flight == 1

    asyncio.run(go())


# Budget


def test_budget_ends_for_all_once_one_does_not_fit():
    async def go():
        budget = Budget(tokens=100)
        assert await budget.hold(60, None)
        budget.spend(60, None)
        budget.release(60, None, sent=True)
        assert not await budget.hold(50, None)
        assert not await budget.hold(1, None)
        assert budget.used_up == "100 tokens"

    asyncio.run(go())


@pytest.mark.parametrize(
    ("dollars", "held", "most", "fits"),
    [
        (1.0, 0.0, 1.0, True),
        (1.0, 0.0, 1.000001, False),
        (1.0, 0.5, 0.500001, False),
        (0.3, 0.1, 0.2, True),  # 0.1 + 0.2 is more than 0.3 in floating point
    ],
)
def test_a_budget_in_dollars_is_exact_up_to_rounding(dollars, held, most, fits):
    async def go():
        budget = Budget(dollars=dollars)
        assert await budget.hold(0, held)
        budget.spend(0, held)
        budget.release(0, held, sent=True)
        assert await budget.hold(0, most) == fits

    asyncio.run(go())


def test_budget_waits_for_calls_that_may_cost_less_than_was_held():
    async def go():
        budget = Budget(dollars=1.0)
        assert await budget.hold(0, 0.8)
        second = asyncio.create_task(budget.hold(0, 0.8))
        await settled()
        assert not second.done()
        budget.spend(0, 0.1)
        budget.release(0, 0.8, sent=True)
        assert await second

    asyncio.run(go())


@given(
    st.integers(0, 12), st.integers(0, 500), st.floats(0, 5),
    st.lists(st.tuples(st.integers(1, 100), st.floats(0, 1), st.floats(0, 1)), max_size=30), st.integers(1, 8),
)  # fmt: skip
def test_budget_is_never_passed(prompts, tokens, dollars, calls, workers):
    async def go():
        budget = Budget(prompts=prompts, tokens=tokens, dollars=dollars)
        work, refused = iter(calls), []

        async def worker():
            for most, price, share in work:
                if not await budget.hold(most, price):
                    refused.append(budget.used_up)
                    continue
                await asyncio.sleep(0)
                budget.spend(int(most * share), price * share)
                budget.release(most, price, sent=True)

        await asyncio.gather(*(worker() for _ in range(workers)))
        spent = budget.spent
        assert spent.prompts <= prompts
        assert spent.tokens <= tokens
        assert spent.dollars <= dollars * (1 + 1e-9)
        assert spent.prompts + len(refused) == len(calls)
        assert None not in refused
        assert len(set(refused)) <= 1

    asyncio.run(go())


def test_odd_settings_are_refused():
    for make in (
        lambda: Budget(dollars=-1),
        lambda: Budget(tokens=float("nan")),
        lambda: Concurrency(0),
        lambda: Concurrency(4, least=5),
        lambda: Concurrency(4, cut=1.0),
        lambda: Concurrency(4, tolerated=1.0),
    ):
        with pytest.raises(SettingsError, match="allowed"):
            make()
