"""What the harness and a peer say to each other: a line of JSON for each command on standard input.

A peer that is ready says so first. `run SECONDS` measures for about so long. It ends with its standard input.
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
    gc.collect()
    gc.disable()
    say(ready=True, **facts)
    for line in sys.stdin:
        command, *arguments = line.split()
        if command == "run":
            say(**measure(step, float(arguments[0])))
        else:
            say(error=f"unknown command {command}")
