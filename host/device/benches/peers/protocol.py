"""The protocol between the harness and a peer: the peer answers each command on standard input with a line of JSON.

First, a peer reports that it is ready. `run SECONDS` measures for about this time; if the peer has several modes, the command
is `run SECONDS MODE`. The peer exits when its standard input is closed.
"""

import gc
import json
import os
import sys
import time

# Output of libraries must not corrupt the protocol: standard output is reserved, and libraries print to standard error.
_answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)


def say(**facts):
    print(json.dumps(facts), file=_answers, flush=True)


def measure(step, seconds):
    """Returns the seconds of the fastest and of the median run, of at least two runs."""
    times, clock = [], time.perf_counter
    begun = clock()
    while clock() - begun < seconds or len(times) < 2:
        started = clock()
        step()
        times.append(clock() - started)
    times.sort()
    return {"best": times[0], "median": times[len(times) // 2], "runs": len(times)}


def serve(step, **facts):
    """Reports that the peer is ready, then runs commands."""
    serve_ways([lambda seconds: measure(step, seconds)], **facts)


def serve_ways(runs, **facts):
    """Like `serve`, with a function per mode that measures it for a number of seconds."""
    gc.collect()
    gc.disable()
    say(ready=True, **facts)
    for line in sys.stdin:
        command, *arguments = line.split()
        if command == "run":
            say(**runs[int(arguments[1]) if len(arguments) > 1 else 0](float(arguments[0])))
        else:
            say(error=f"unknown command {command}")
