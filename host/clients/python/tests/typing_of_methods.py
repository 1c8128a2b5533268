"""Checked by mypy, not run: both clients show the types of their methods, and wrong arguments are errors."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import saggar
from saggar._tensors import Array


def blocking(client: saggar.Client) -> None:
    prediction: saggar.Prediction = client.predict("digits", [1], deadline=1)
    label: Array = prediction["label"]
    pieces: Iterator[saggar.Piece] = client.stream("writer", {"prompt": "a"})
    job: saggar.Job = client.jobs.submit("net.wasm", data="digits", params={"epochs": 3}, retry=2)
    ended: saggar.Job = job.wait(timeout=3)
    lines: Iterator[str] = ended.logs(follow=True)
    jobs: list[saggar.Job] = client.jobs.list(state="RUNNING")
    model: saggar.Model = client.models.canary("digits", 2, 10)
    dataset: saggar.Dataset = client.data.push({"x": label}, "d", splits={"train": 0.8, "test": 0.2})
    print(pieces, lines, jobs, model.serving, dataset.items, job.curves().plot("loss"))
    client.predict("digits", [1], deadline="1 s")  # type: ignore[arg-type]
    client.jobs.submit("net.wasm", retri=2)  # type: ignore[call-arg]
    client.models.promote("digits")  # type: ignore[call-arg]


async def asynchronous(client: saggar.AsyncClient) -> None:
    prediction: saggar.Prediction = await client.predict("digits", [1])
    pieces: AsyncIterator[saggar.Piece] = client.stream("writer", {"prompt": "a"})
    job: saggar.AsyncJob = await (await client.jobs.submit("net.wasm", priority=9)).wait()
    jobs: list[saggar.AsyncJob] = await client.jobs.list()
    print(prediction, pieces, jobs, [line async for line in job.logs()])
    client.models.promote("digits", 1)  # type: ignore[unused-coroutine]
