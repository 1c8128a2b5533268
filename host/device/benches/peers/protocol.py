"""What the harness and a peer say to each other: a line of JSON for each command on standard input.

A peer that is ready says so first. `run SECONDS` measures for about so long; where there are several ways of computing
the same, `run SECONDS WAY`. It ends with its standard input.
"""

import gc
import json
import os
import sys
import time

# Libraries that print must not break into the protocol: standard output is kept for it, and theirs becomes the errors'.
_answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)


def say(**facts):
    print(json.dumps(facts), file=_answers, flush=True)


def measure(step, seconds):
    """Seconds of the fastest run and of the median one, of two runs at least."""
    times, clock = [], time.perf_counter
    begun = clock()
    while clock() - begun < seconds or len(times) < 2:
        started = clock()
        step()
        times.append(clock() - started)
    times.sort()
    return {"best": times[0], "median": times[len(times) // 2], "runs": len(times)}


def serve(step, **facts):
    """Says that the peer is ready, then does what it is told."""
    serve_ways([lambda seconds: measure(step, seconds)], **facts)


def serve_ways(runs, **facts):
    """As `serve`, with a function for each way, which measures it for so many seconds."""
    gc.collect()
    gc.disable()
    say(ready=True, **facts)
    for line in sys.stdin:
        command, *arguments = line.split()
        if command == "run":
            say(**runs[int(arguments[1]) if len(arguments) > 1 else 0](float(arguments[0])))
        else:
            say(error=f"unknown command {command}")
