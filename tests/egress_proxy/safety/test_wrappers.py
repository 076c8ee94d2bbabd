"""What a command runs besides itself."""

import pytest

from egress_proxy.safety.inner import Code, Script, StandardInput, Words
from egress_proxy.safety.values import UNKNOWN, words_of
from egress_proxy.safety.wrappers import unwrap


def inner(line: str) -> list[str]:
    found = []
    for item in unwrap(words_of(line.split(" "))):
        match item:
            case Words(words=words):
                found.append(" ".join(word.text for word in words))
            case Code(content=content, language=language):
                found.append(f"{language}: {content.text}")
            case Script(path=path):
                found.append(f"file {path}")
            case StandardInput(language=language):
                found.append(f"{language} <")
    return found


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("sudo -n -u root X y", ["X y"]),
        ("sudo --user root A=1 X", ["X"]),
        ("env -u H A=1 X y", ["X y"]),
        ("nice -n 5 X", ["X"]),
        ("timeout -k 3 --signal=KILL 10 X", ["X"]),
        ("chrt -i 0 X", ["X"]),
        ("flock /l X y", ["X y"]),
        ("flock /l -c X", ["sh: X", "-c X"]),
        ("watch -n 1 X y", ["sh: X y"]),
        ("docker exec -it -e A=1 c X y", ["X y"]),
        ("docker run --rm -v a:b --name n img X", ["X"]),
        ("docker ps -a", []),
        ("kubectl exec pod -n x -- X y", ["X y"]),
        ("poetry run X y", ["X y"]),
        ("npx -c X", ["sh: X"]),
        ("bash -lc X", ["sh: X"]),
        ("bash -euxo pipefail -c X", ["sh: X"]),
        ("bash -x f.sh a", ["file f.sh"]),
        ("bash X -r y", ["file X", "X -r y"]),
        ("bash", ["sh <"]),
        ("bash -s", ["sh <"]),
        ("python3.12 -c X", ["python: X"]),
        ("python -m X y", ["X y"]),
        ("ssh h -t X", ["sh: X"]),
        ("uv run -", ["python <"]),
        ("python manage.py shell -c X", ["file manage.py", "python: X"]),
        ("rails runner X", ["ruby: X"]),
        ("rails console", []),
        ("deno run -A -", ["deno <"]),
        ("pwsh -c X", ["sh: X"]),
        ("wait-for-it.sh h:1 -- X y", ["X y"]),
        ("apptainer exec img X y", ["X y"]),
        ("xterm -e X y", ["sh: X y"]),
        ("nix shell p -c X", ["X"]),
        ("concurrently X", ["sh: X"]),
        ("mystery -n rm -rf /", ["rm -rf /"]),
        ("mystery dd of=/dev/sda", ["dd of=/dev/sda"]),
        ("mystery rm x", []),
        ("echo rm -rf /", []),
        (f"{UNKNOWN} -c X", ["any: X"]),
        ("perl -ne X", ["perl: X"]),
        ("node -", ["node <"]),
        ("awk -F : X", ["awk: X"]),
        ("vim -c !X", ["vim: !X"]),
        ("vim +!X", ["vim: !X"]),
        ("psql -c !X", ["bang: !X"]),
        ("perl -MFile::Path=rmtree -e X", ["perl: X"]),
        ("awk -v a=b X", ['awk: a = "b";X']),
        ("awk {system($0)}", ["awk: {system($0)}", "sh <"]),
        ("awk -f X", ["file X"]),
        ("env - X", ["X"]),
        ("env A=b X $A", ["sh: A=b X '$A'"]),
        ("env EDITOR=X y", ["sh: X", "y"]),
        ("ssh h", ["sh <"]),
        ("k3s kubectl X", ["kubectl X"]),
        ("tar --checkpoint-action=exec=X", ["sh: X"]),
        ("zip a f -TT X", ["sh: X"]),
        ("ls -l", []),
        ("poetry install", []),
    ],
)
def test_one_level_is_taken_off(line: str, expected: list[str]) -> None:
    assert inner(line) == expected
