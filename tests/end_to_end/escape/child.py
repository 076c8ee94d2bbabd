"""Runs attempts, inside: `python3 -I child.py NAMES GROUND_AS_JSON`. Prints `NAME OUTCOME WORDS` for each;
several are run one after the other, each in a process of its own.

The standard library and this folder alone, so that nothing but the folder has to be readable there. Next:
attempts.py (outcomes), bench.py (starts this).
"""

import errno
import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from tests.end_to_end.escape.attempts import Blocked, Escaped, Ground, Missing
from tests.end_to_end.escape.battery import BATTERY

RETURNED, FAULT = "Returned", "Fault"
OWN_TMP = "TMPDIR"


def outcome(name: str, ground: Ground) -> str:
    try:
        BATTERY[name].tries(ground)
    except (Blocked, Escaped, Missing) as end:
        return f"{type(end).__name__} {end}"
    except OSError as error:
        return f"OSError {errno.errorcode.get(error.errno or 0, '?')} {error}"
    except Exception as error:  # a fault of the attempt must be seen as one
        return f"{FAULT} {type(error).__name__} {error}"
    return RETURNED


def run(name: str, ground: Ground) -> None:
    """Never returns: no attempt's threads or exit handlers run on."""
    line = f"{name} {outcome(name, ground)}".replace("\n", " ")
    sys.stdout.flush()
    os.write(1, f"\n{line[:200]}\n".encode())
    os._exit(0)


def main(names: list[str], ground: Ground) -> None:
    print(f"{OWN_TMP} is {os.environ.get('TMPDIR', '')}", flush=True)  # stays when the supervisor is killed
    if len(names) == 1:
        run(names[0], ground)
    for name in names:
        child = os.fork()
        if child == 0:
            run(name, ground)
        os.waitpid(child, 0)


if __name__ == "__main__":
    main(sys.argv[1].split(","), Ground(**json.loads(sys.argv[2])))
