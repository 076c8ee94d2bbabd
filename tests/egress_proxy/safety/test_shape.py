"""One spelling for many."""

import pytest

from egress_proxy.safety.shape import shape_of
from egress_proxy.safety.values import Command, words_of


@pytest.mark.parametrize(
    ("line", "shape"),
    [
        ("/bin/rm -rfv -- a b/../c", "rm -f -r -v -- a c"),
        ("rm --recursive --forc a", "rm -f -r -- a"),
        ("git -C x push -fu origin +m", "git -C=x -f -u -- push origin +m"),
        ("git push --force --help", "git.dry-run --help -f -- push"),
        ("aws s3 rm x --dryrun", "aws.dry-run --dryrun -- s3 rm x"),
        ("aws s3 rm help", "aws.dry-run -- s3 rm help"),
        ("docker run x --help", "docker --help -- run x"),
        ("rm -r / --help", "rm --help -r -- /"),
        ("visudo --version", "visudo.dry-run --version --"),
        ("pkill -KILL x", "pkill -KILL -- x"),
        ("git clean -nfdx", "git.dry-run -d -f -n -x -- clean"),
        ("git branch --force-create", "git --force-create -- branch"),
        ("docker-compose down -v", "docker -v -- compose down"),
        ("kubectl -n a delete pod b -n c", "kubectl -n=a -n=c -- delete pod b"),
        ("rm -r /et* /?sr /t* /*", "rm -r -- /etc /usr /t* /*"),
        ("", ""),
    ],
)
def test_shapes(line: str, shape: str) -> None:
    assert shape_of(Command(tuple(words_of(line.split())))) == shape


def test_blanks_inside_a_word_are_tabs_and_folders_count() -> None:
    assert shape_of(Command(tuple(words_of(["x", "a b"])))) == "x -- a\tb"
    assert shape_of(Command(tuple(words_of(["rm", "*"])), folder="/")) == "rm -- /*"
